"""The machine as `klet topology` shows it: its parts, and whose they are. Pure, from what the managers decide by."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from klet.api.klet_v1_topology import (
    EXCLUSIVE,
    RESERVED,
    SHARED,
    CoreGroup,
    CpuSocket,
    LogicalCpu,
    MachineTopology,
    ManagerPolicies,
    NodeMemory,
    NumaMemory,
    PhysicalCore,
    ResourceHolder,
)
from klet.api.pod import Pod
from klet.checkpoint.upstream import NumaNodeState
from klet.host.machine.info import Cpu, MachineInfo, NumaNode
from klet.model.allocation import CpuUse
from klet.model.pod_resources import MEMORY
from klet.model.pods import PodUID
from klet.model.roles import CpuOwners
from klet.resources.memory.manager import MemoryManager
from klet.resources.memory.tables import MemoryState, cells_of, hugepage_resource

NO_MEMORY = MemoryState(nodes={})


class TopologyReader:
    """Reads the boards of the managers when somebody asks."""

    def __init__(
        self,
        *,
        node: str,
        machine: Callable[[], MachineInfo],
        policies: ManagerPolicies,
        cpus: CpuOwners,
        memory: MemoryManager | None,
        find_pod: Callable[[PodUID], Pod | None],
    ) -> None:
        self._node = node
        self._machine = machine
        self._policies = policies
        self._cpus = cpus
        self._memory = memory
        self._find_pod = find_pod

    def read(self) -> MachineTopology:
        state = NO_MEMORY if self._memory is None else self._memory.state
        return build_view(
            self._machine(),
            self._cpus.cpu_use(),
            state,
            node=self._node,
            policies=self._policies,
            find_pod=self._find_pod,
        )


def build_view(
    machine: MachineInfo,
    use: CpuUse,
    memory: MemoryState,
    *,
    node: str,
    policies: ManagerPolicies,
    find_pod: Callable[[PodUID], Pod | None],
) -> MachineTopology:
    """Return the machine with everyone who has a part of it."""
    holders = _list_holders(use, memory, find_pod)
    owners = {cpu: index for index, holder in enumerate(holders) for cpu in holder.cpus}
    is_managed = bool(use.shared or use.exclusive or use.reserved)
    marks = _Marks(use=use if is_managed else CpuUse(shared=machine.online_cpus), owners=owners)
    return MachineTopology(
        node=node,
        policies=policies,
        sockets=tuple(
            CpuSocket(id=socket, groups=_build_groups(cpus, marks))
            for socket, cpus in _by_number(machine.topology, lambda cpu: cpu.socket).items()
        ),
        numa_nodes=tuple(_build_node(each, memory.nodes.get(each.number)) for each in machine.numa_nodes),
        holders=holders,
    )


class _Marks(Struct, frozen=True, kw_only=True):
    use: CpuUse
    owners: Mapping[int, int]

    def of(self, cpu: int) -> LogicalCpu:
        holder = self.owners.get(cpu)
        is_shared = cpu in self.use.shared
        if holder is not None:
            return LogicalCpu(id=cpu, use=EXCLUSIVE, shared=is_shared, holder=holder)
        return LogicalCpu(id=cpu, use=RESERVED if cpu in self.use.reserved else SHARED, shared=is_shared)


def _build_groups(cpus: Iterable[Cpu], marks: _Marks) -> tuple[CoreGroup, ...]:
    return tuple(
        CoreGroup(
            numa_node=node,
            cores=tuple(
                PhysicalCore(id=core, cpus=tuple(marks.of(cpu.number) for cpu in threads))
                for core, threads in _by_number(own, lambda cpu: cpu.core).items()
            ),
        )
        for node, own in _by_number(cpus, lambda cpu: cpu.node).items()
    )


def _by_number(cpus: Iterable[Cpu], number: Callable[[Cpu], int]) -> dict[int, list[Cpu]]:
    groups: dict[int, list[Cpu]] = {}
    for cpu in cpus:
        groups.setdefault(number(cpu), []).append(cpu)
    return dict(sorted(groups.items()))


def _build_node(node: NumaNode, state: NumaNodeState | None) -> NumaMemory:
    distances = {str(other): distance for other, distance in node.distances.items()}
    if state is None:
        return NumaMemory(id=node.number, memory=_unmanaged(node), group=(node.number,), distances=distances)
    tables = sorted((state.memory_map or {}).items(), key=lambda each: (each[0] != MEMORY, each[0]))
    memory = tuple(
        NodeMemory(
            resource=resource,
            total=table.total,
            system_reserved=table.system_reserved,
            given=table.reserved,
            free=table.free,
        )
        for resource, table in tables
    )
    return NumaMemory(id=node.number, memory=memory, group=tuple(sorted(cells_of(state))), distances=distances)


def _unmanaged(node: NumaNode) -> tuple[NodeMemory, ...]:
    pages = {hugepage_resource(size): size * count for size, count in sorted(node.hugepages.items())}
    return (
        NodeMemory(resource=MEMORY, total=node.memory, free=max(node.memory - sum(pages.values()), 0)),
        *(NodeMemory(resource=name, total=size, free=size) for name, size in pages.items()),
    )


def _list_holders(
    use: CpuUse, memory: MemoryState, find_pod: Callable[[PodUID], Pod | None]
) -> tuple[ResourceHolder, ...]:
    """Return the containers that have something alone, by pod and name."""
    cpus = {(uid, name): own for uid, containers in use.exclusive.items() for name, own in containers.items() if own}
    blocks = {(uid, name): own for uid, containers in memory.entries.items() for name, own in containers.items()}
    holders: list[ResourceHolder] = []
    for uid, name in cpus.keys() | blocks.keys():
        pod = find_pod(uid) if isinstance(uid, PodUID) else None
        own = blocks.get((uid, name), ())
        holders.append(
            ResourceHolder(
                namespace="" if pod is None else pod.metadata.namespace,
                pod="" if pod is None else pod.metadata.name,
                uid=uid,
                container=name,
                cpus=tuple(sorted(cpus.get((PodUID(uid), name), ()))) if isinstance(uid, PodUID) else (),
                numa_nodes=tuple(sorted({node for block in own for node in block.numa_affinity or ()})),
                memory={block.type: block.size for block in own},
            )
        )
    return tuple(sorted(holders, key=lambda each: (each.namespace, each.pod, each.uid, each.container)))
