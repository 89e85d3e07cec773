"""The cgroups of the QoS classes, kept in step with the pods (QOSContainerManager).

Every change of the pods leads to an update. What somebody else has changed is found by `qos_repair.py`, once a minute;
upstream writes everything again that often, without looking.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from klet.api.pod import Pod
from klet.host.cgroups.manager import CgroupManager
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.errors import CgroupError
from klet.model.allocation import PodAllocation
from klet.model.qos import QosClass
from klet.resources.cgroup_drift import Drift, find_drift, merge_values
from klet.resources.cgroup_values import Demand, QosRules, compute_demand, compute_qos_values
from klet.resources.names import qos_cgroup

logger = logging.getLogger(__name__)


class RepairedCgroup(Struct, frozen=True, kw_only=True):
    """A cgroup that somebody else had removed, or changed."""

    path: str
    was_removed: bool = False
    drifts: tuple[Drift, ...] = ()


class QosCgroups:
    """Gives burstable pods together the CPU they request, and best-effort pods the rest (QoS container manager)."""

    def __init__(
        self,
        *,
        cgroups: CgroupManager,
        kubepods: CgroupName,
        rules: QosRules,
        root_limits: Callable[[], CgroupResources | None],
    ) -> None:
        self._cgroups = cgroups
        self._rules = rules
        self._root_limits = root_limits
        """What else the cgroup of all pods is limited to, once that was written."""
        self._root, self._burstable, self._best_effort = (
            qos_cgroup(kubepods, qos) for qos in (QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT)
        )
        self._writing = asyncio.Lock()
        self._written: dict[CgroupName, CgroupResources] = {}
        self._demands: dict[str, tuple[Pod, PodAllocation, Demand]] = {}

    async def start(self) -> None:
        """Make the cgroups. The burstable shares of a previous agent stay until the pods are known."""
        empty = compute_qos_values((), self._rules)
        if not self._cgroups.exists(self._root):
            await self._cgroups.create(self._root, empty.root)
        await self._make(self._burstable, replace(empty.burstable, cpu_shares=None, memory_limit=None))
        await self._make(self._best_effort, replace(empty.best_effort, memory_limit=None))

    async def update(self, pods: Iterable[tuple[Pod, PodAllocation]]) -> None:
        """Write what these active pods with their allocations call for, as far as it is not written yet."""
        self._demands = {
            pod.metadata.uid: (pod, allocation, self._demand_of(pod, allocation)) for pod, allocation in pods
        }
        values = compute_qos_values((demand for *_, demand in self._demands.values()), self._rules)
        wanted = {
            self._root: values.root,
            self._burstable: values.burstable,
            self._best_effort: values.best_effort,
        }
        # The lock is fair and nothing is awaited before it, so the newest view of the pods is written last.
        async with self._writing:
            if self._rules.reserved_percent is not None:
                if not await self._try_all(wanted):
                    return
                wanted = {name: await self._raised_to_usage(name, given) for name, given in wanted.items()}
            for name, given in wanted.items():
                await self._write(name, given)

    async def repair(self) -> tuple[RepairedCgroup, ...]:
        """Read back what was written, and write again what somebody else has changed; returns what that was."""
        repaired: list[RepairedCgroup] = []
        # Under the lock: else an update could come between the reading and the comparison.
        async with self._writing:
            for name, values in list(self._written.items()):
                wanted = merge_values(values, self._root_limits()) if name == self._root else values
                if (found := await self._compare(name, wanted)) is not None:
                    repaired.append(found)
                    self._written.pop(name)
                    await (self._cgroups.create if found.was_removed else self._cgroups.update)(name, wanted)
                    self._written[name] = values
        return tuple(repaired)

    async def _compare(self, name: CgroupName, wanted: CgroupResources) -> RepairedCgroup | None:
        path = self._cgroups.path(name)
        if not self._cgroups.exists(name):
            return RepairedCgroup(path=path, was_removed=True)
        found = await self._cgroups.read(name)
        drifts = tuple(find_drift(wanted, found, version=self._cgroups.mode.version, page_size=self._rules.page_size))
        return RepairedCgroup(path=path, drifts=drifts) if drifts else None

    def _demand_of(self, pod: Pod, allocation: PodAllocation) -> Demand:
        """Return the demand; pods and allocations are immutable, so the same ones as before need no new sum."""
        held = self._demands.get(pod.metadata.uid)
        if held is not None and held[0] is pod and held[1] is allocation:
            return held[2]
        return compute_demand(pod, allocation)

    async def _make(self, name: CgroupName, values: CgroupResources) -> None:
        is_new = not self._cgroups.exists(name)
        try:
            await (self._cgroups.create if is_new else self._cgroups.update)(name, values)
        except CgroupError as error:
            verb = "create" if is_new else "update"
            raise CgroupError(f"failed to {verb} top level {name} QOS cgroup : {error}") from error

    async def _try_all(self, wanted: dict[CgroupName, CgroupResources]) -> list[CgroupError]:
        errors = []
        for name, values in wanted.items():
            try:
                await self._write(name, values)
            except CgroupError as error:
                logger.info("QoS cgroup not updated at first", extra={"cgroup": str(name), "error": str(error)})
                errors.append(error)
        return errors

    async def _raised_to_usage(self, name: CgroupName, values: CgroupResources) -> CgroupResources:
        """Return the limit, or what the class uses if that is more: some memory cannot be reclaimed."""
        memory = (await self._cgroups.usage(name)).memory
        if memory is None or values.memory_limit is None or memory.usage <= values.memory_limit:
            return values
        return replace(values, memory_limit=memory.usage)

    async def _write(self, name: CgroupName, values: CgroupResources) -> None:
        if self._written.get(name) == values and self._cgroups.seems_to_exist(name):
            return
        self._written.pop(name, None)
        await (self._cgroups.update if self._cgroups.exists(name) else self._cgroups.create)(name, values)
        self._written[name] = values


class NoQosCgroups:
    """For a node that does not sort its pods into classes (`cgroupsPerQOS: false`)."""

    async def start(self) -> None:
        """Do nothing: there is nothing to make."""

    async def update(self, pods: Iterable[tuple[Pod, PodAllocation]]) -> None:
        """Do nothing: there is nothing to share out."""

    async def repair(self) -> tuple[RepairedCgroup, ...]:
        """Do nothing: nothing was written."""
        return ()
