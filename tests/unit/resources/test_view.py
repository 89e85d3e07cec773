"""The machine as it is shown: every CPU and all memory, and whose they are."""

from msgspec.structs import replace

from klet.api.klet_v1_topology import (
    LogicalCpu,
    ManagerPolicies,
    NodeMemory,
    NumaMemory,
    PhysicalCore,
    ResourceHolder,
)
from klet.checkpoint.upstream import MemoryBlock
from klet.host.machine.info import NumaNode
from klet.model.allocation import CpuUse
from klet.resources.memory.tables import MemoryState, build_tables, take
from klet.resources.view import NO_MEMORY, build_view
from klet.testing.builders import make_pod
from klet.testing.machines import SMALL, TWO_SOCKETS, read_machine

GIB = 1 << 30
PODS = {"uid-1": make_pod(name="web")}
UNMANAGED = CpuUse(shared=frozenset())


def view(machine, use=UNMANAGED, memory=NO_MEMORY):
    return build_view(machine, use, memory, node="n", policies=ManagerPolicies(), find_pod=PODS.get)


def test_without_managers_all_is_shared(tmp_path):
    shown = view(read_machine(tmp_path, replace(SMALL, hugepages={2 << 20: 512})))
    (socket,) = shown.sockets
    assert [(group.numa_node, len(group.cores)) for group in socket.groups] == [(0, 4)]
    assert socket.groups[0].cores[1] == PhysicalCore(
        id=1, cpus=(LogicalCpu(id=1, use="shared", shared=True), LogicalCpu(id=5, use="shared", shared=True))
    )
    assert shown.numa_nodes == (
        NumaMemory(
            id=0,
            memory=(
                NodeMemory(resource="memory", total=32 * GIB, free=31 * GIB),
                NodeMemory(resource="hugepages-2Mi", total=GIB, free=GIB),
            ),
            group=(0,),
            distances={"0": 10},
        ),
    )
    assert shown.holders == ()


def test_whose_the_cpus_are(tmp_path):
    use = CpuUse(
        shared=frozenset({0, 1, 3, 4, 5, 6, 7, 9, 10, 11}),
        reserved=frozenset({0, 6}),
        exclusive={"uid-1": {"main": frozenset({2, 8}), "none": frozenset()}},
    )
    shown = view(read_machine(tmp_path, TWO_SOCKETS), use)
    assert [socket.id for socket in shown.sockets] == [0, 1]
    assert [core.cpus for core in shown.sockets[0].groups[0].cores] == [
        (LogicalCpu(id=0, use="reserved", shared=True), LogicalCpu(id=6, use="reserved", shared=True)),
        (LogicalCpu(id=2, use="exclusive", holder=0), LogicalCpu(id=8, use="exclusive", holder=0)),
        (LogicalCpu(id=4, use="shared", shared=True), LogicalCpu(id=10, use="shared", shared=True)),
    ]
    assert shown.holders == (
        ResourceHolder(namespace="default", pod="web", uid="uid-1", container="main", cpus=(2, 8)),
    )


def test_strictly_reserved_cpus_are_not_shared(tmp_path):
    use = CpuUse(shared=frozenset(range(1, 8)), reserved=frozenset({0}))
    cores = view(read_machine(tmp_path, SMALL), use).sockets[0].groups[0].cores
    assert cores[0].cpus == (LogicalCpu(id=0, use="reserved"), LogicalCpu(id=4, use="shared", shared=True))


def test_whose_the_memory_is(tmp_path):
    machine = read_machine(tmp_path, TWO_SOCKETS)
    block = MemoryBlock(numa_affinity=(0, 1), type="memory", size=40 * GIB)
    tables = take(build_tables(machine.numa_nodes, {0: {"memory": 2 * GIB}}), block, size=block.size)
    entries = {"uid-1": {"main": (block,)}, "gone": {"c": ()}, "not a uid": {"c": ()}}
    shown = view(machine, memory=MemoryState(nodes=tables, entries=entries))
    first = shown.numa_nodes[0]
    assert first.memory[0] == NodeMemory(
        resource="memory", total=32 * GIB, system_reserved=2 * GIB, given=30 * GIB, free=0
    )
    assert first.group == (0, 1)
    assert shown.holders == (
        ResourceHolder(uid="gone", container="c"),
        ResourceHolder(uid="not a uid", container="c"),
        ResourceHolder(
            namespace="default",
            pod="web",
            uid="uid-1",
            container="main",
            numa_nodes=(0, 1),
            memory={"memory": 40 * GIB},
        ),
    )


def test_a_numa_node_without_cpus(tmp_path):
    machine = read_machine(tmp_path, SMALL)
    machine = replace(machine, numa_nodes=(*machine.numa_nodes, NumaNode(number=1, memory=GIB)))
    shown = view(machine)
    assert [group.numa_node for socket in shown.sockets for group in socket.groups] == [0]
    assert [node.id for node in shown.numa_nodes] == [0, 1]
