"""Looks at the cgroups of the QoS classes once a minute (upstream: the loop of the QoS container manager).

Somebody else may change them: an administrator, another agent, a service manager that reads its units again. It is
written again what the pods call for, and recorded.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.host.errors import CgroupError
from klet.model.causes import CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.resources.qos_cgroups import RepairedCgroup

logger = logging.getLogger(__name__)

DECIDER: Final = "resources.qos_repair"
EVERY: Final = timedelta(minutes=1)


class RepairableCgroups(Protocol):
    """The cgroups of the QoS classes."""

    async def repair(self) -> tuple[RepairedCgroup, ...]:
        """Write again what somebody else has changed; raises CgroupError."""
        ...


class QosRepair:
    """Keeps the QoS cgroups as the pods call for, also when somebody else changes them."""

    def __init__(
        self,
        *,
        cgroups: RepairableCgroups,
        pods_are_known: Callable[[], bool],
        balance: Callable[[], Awaitable[None]],
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._cgroups = cgroups
        self._pods_are_known = pods_are_known
        self._balance = balance
        """Updates the cgroups for the pods that are there now."""
        self._decisions = DecisionRecorder(recorder, decider=DECIDER).for_node()
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(EVERY)
            # Before that, pods of a previous run would count as gone, and lose their shares.
            if self._pods_are_known():
                # Repaired first: one that was removed would be made again without a record.
                await self._repair()
                await self._balance()

    async def _repair(self) -> None:
        try:
            repaired = await self._cgroups.repair()
        except CgroupError as error:
            logger.warning("QoS cgroups not repaired", extra={"error": str(error)})
            return
        for each in repaired:
            self._decisions.record(
                Reason.QOS_CGROUP_REPAIRED, describe_repair(each), measurements={"cgroup": each.path}
            )


def describe_repair(repaired: RepairedCgroup) -> str:
    if repaired.was_removed:
        return f"somebody else had removed the cgroup {repaired.path}; it was made again"
    changes = ", ".join(map(str, repaired.drifts))
    return f"somebody else had changed the cgroup {repaired.path}: {changes}; it was written again"
