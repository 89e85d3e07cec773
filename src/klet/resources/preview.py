"""Where the containers of a pod would be placed: the managers themselves decide, on copies of what they know."""

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from msgspec import Struct

from klet.api.pod import Pod
from klet.checkpoint.file import Absent, Found
from klet.host.machine.info import MachineInfo
from klet.model.causes import CauseId, Finding
from klet.model.placement import ContainerPlacement, PlacementRefusal, PodPlacement
from klet.model.pods import PodUID, uid_of
from klet.model.roles import CpuOwners, ResourceHolders
from klet.model.verdicts import Reject
from klet.resources.memory.manager import MemoryManager
from klet.resources.topology.manager import TopologyManager, every_container

T = TypeVar("T")


class CopiedManagers(Struct, frozen=True, kw_only=True):
    """Managers that know what the real ones know, and whose decisions change nothing."""

    topology: TopologyManager
    cpus: CpuOwners
    memory: MemoryManager | None


class ManagedPlacement:
    """Has copies of the managers admit a pod, and looks at what they gave it."""

    def __init__(self, *, copy: Callable[[Pod], CopiedManagers], machine: Callable[[], MachineInfo]) -> None:
        self._copy = copy
        """Copies them as they would be when this pod comes: without the one that it takes the place of."""
        self._machine = machine

    async def preview(self, pod: Pod) -> PodPlacement:
        managers = self._copy(pod)
        verdict = await managers.topology.admit(pod, ())
        if isinstance(verdict, Reject):
            return PodPlacement(refusal=PlacementRefusal(reason=verdict.reason, message=verdict.message))
        placed = (self._place(managers, uid_of(pod), each.name) for each in every_container(pod))
        return PodPlacement(containers=tuple(each for each in placed if each.cpus or each.numa_nodes))

    def _place(self, managers: CopiedManagers, uid: PodUID, container: str) -> ContainerPlacement:
        cpus = managers.cpus.cpu_use().exclusive.get(uid, {}).get(container, frozenset())
        nodes = {cpu.node for cpu in self._machine().topology if cpu.number in cpus}
        if managers.memory is not None:
            nodes |= managers.memory.pins_of(uid, container).memory_nodes
        return ContainerPlacement(container=container, cpus=tuple(sorted(cpus)), numa_nodes=tuple(sorted(nodes)))


class OtherHolders:
    """Who may still use what they were given, if some pods were gone."""

    def __init__(self, *, holders: ResourceHolders, gone: Collection[PodUID]) -> None:
        self._holders = holders
        self._gone = frozenset(gone)

    def may_hold(self, uid: PodUID, container: str) -> bool:
        return uid not in self._gone and self._holders.may_hold(uid, container)


class NoStateFile(Generic[T]):
    """Keeps nothing."""

    async def read_or_refuse(self) -> Found[T] | Absent:
        return Absent()

    async def save(self, value: T) -> None:
        """Do nothing: what copies decide is not kept."""


class NoRecords:
    """Records nothing."""

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:  # noqa: ARG002 - the role's
        return CauseId("")
