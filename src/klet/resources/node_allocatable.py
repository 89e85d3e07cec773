"""Limits all pods together to what the node has for them, and the reserved cgroups to what is reserved (upstream:
`enforceNodeAllocatableCgroups`).
"""

import logging
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.host.cgroups.manager import CgroupManager
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.errors import CgroupError
from klet.model.causes import CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.resources.node_values import NodeAllocatableRules, ReservedCgroup, compute_root_values, plan_reserved

logger = logging.getLogger(__name__)

DECIDER: Final = "resources.node_allocatable"
RETRY: Final = timedelta(minutes=1)


class NotEnforced(KletError):
    """A reserved cgroup cannot be limited as configured: the agent does not run without it."""


class NodeAllocatable:
    """Keeps pods from using what is reserved for the system and for Kubernetes."""

    def __init__(
        self,
        *,
        cgroups: CgroupManager,
        root: CgroupName,
        rules: NodeAllocatableRules,
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._cgroups = cgroups
        self._root = root
        self._rules = rules
        self._values = compute_root_values(rules)
        self._decisions = DecisionRecorder(recorder, decider=DECIDER).for_node()
        self._clock = clock
        self._is_enforced = False

    @property
    def enforced(self) -> CgroupResources | None:
        """Return what the cgroup of all pods is limited to; None until that was written."""
        return self._values if self._is_enforced else None

    async def make_root(self) -> None:
        """Make the cgroup of all pods, if it is not there. One that is there is limited when the agent runs."""
        if not self._cgroups.exists(self._root):
            await self._cgroups.create(self._root, self._values)

    async def limit_reserved(self) -> None:
        """Limit the reserved cgroups, which must be there; raises NotEnforced."""
        for each in plan_reserved(self._rules):
            try:
                await self._limit(each)
            except CgroupError as error:
                text = f'Failed to enforce {each.title} Cgroup Limits on "{each.path}": {error}'
                self._decisions.record(Reason.NODE_ALLOCATABLE_ENFORCEMENT_FAILED, text)
                raise NotEnforced(text) from error
            text = f"Updated limits on {each.owner} cgroup {each.path}"
            self._decisions.record(Reason.NODE_ALLOCATABLE_ENFORCED, text)

    async def run(self) -> None:
        """Limit the pods. The memory that they use may exceed the limit until some are evicted: it is tried again."""
        while not self._is_enforced:
            try:
                await self._cgroups.update(self._root, self._values)
            except CgroupError as error:
                text = f"Failed to update Node Allocatable Limits {self._root.quoted()}: {error}"
                self._decisions.record(
                    Reason.NODE_ALLOCATABLE_ENFORCEMENT_FAILED,
                    text,
                    next_step="try again",
                    next_at=self._clock.now() + RETRY,
                )
                await self._clock.sleep(RETRY)
            else:
                self._is_enforced = True
                self._decisions.record(Reason.NODE_ALLOCATABLE_ENFORCED, "Updated Node Allocatable limit across pods")

    async def _limit(self, reserved: ReservedCgroup) -> None:
        name = self._cgroups.parse(reserved.path)
        if reserved.values is None:
            raise CgroupError(f"{name.quoted()} cgroup is not configured properly")
        self._cgroups.validate(name)
        await self._cgroups.update(name, reserved.values)
