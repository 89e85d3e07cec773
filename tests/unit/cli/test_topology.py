"""The picture that `klet topology` draws."""

from msgspec.structs import replace

from klet.api.klet_v1_topology import (
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
from klet.cli.topology import draw_topology

GIB = 1 << 30
STATIC = ManagerPolicies(cpu="static", memory="Static", topology="restricted", topology_scope="pod")
SHARED = {"use": "shared", "shared": True}


def core(number, *cpus):
    return PhysicalCore(id=number, cpus=cpus)


MACHINE = MachineTopology(
    node="n1",
    policies=STATIC,
    sockets=(
        CpuSocket(
            id=0,
            groups=(
                CoreGroup(
                    numa_node=0,
                    cores=(
                        core(0, LogicalCpu(id=0, use="reserved", shared=True), LogicalCpu(id=8, **SHARED)),
                        core(
                            1,
                            LogicalCpu(id=2, use="exclusive", holder=0),
                            LogicalCpu(id=10, use="exclusive", holder=0),
                        ),
                    ),
                ),
            ),
        ),
    ),
    numa_nodes=(
        NumaMemory(
            id=0,
            group=(0, 1),
            memory=(
                NodeMemory(resource="memory", total=32 * GIB, system_reserved=GIB, given=16 * GIB, free=15 * GIB),
                NodeMemory(resource="hugepages-1Gi"),
            ),
        ),
        NumaMemory(id=1, group=(0, 1), memory=(NodeMemory(resource="memory", total=8 * GIB, free=8 * GIB),)),
    ),
    holders=(
        ResourceHolder(
            namespace="default", pod="web", uid="u", container="app", cpus=(2, 10), numa_nodes=(0, 1),
            memory={"memory": 16 * GIB, "hugepages-1Gi": 0},
        ),
        ResourceHolder(uid="gone", container="init", numa_nodes=(1,)),
    ),
)  # fmt: skip


def test_the_picture():
    assert draw_topology(MACHINE) == (
        "n1: 1 socket, 2 NUMA nodes, 2 cores, 4 CPUs\n"
        "policies: CPU static, memory Static, topology restricted (scope pod)\n"
        "\n"
        "socket 0\n"
        "  NUMA node 0 (used together with 1)\n"
        "    memory         [################r...............]  32.0 GiB in all, 1.0 GiB reserved, "
        "16.0 GiB given to containers, 15.0 GiB free\n"
        "    [ 0 r| 8 .] [ 2 A|10 A]\n"
        "\n"
        "  NUMA node 1 (no CPUs, used together with 0)\n"
        "    memory         [................................]  8.0 GiB in all, 8.0 GiB free\n"
        "\n"
        ".  shared: CPU 8\n"
        "r  reserved for the system: CPU 0 (shared, too)\n"
        "#  memory given to containers\n"
        "A  default/web (app): CPUs 2,10, 16.0 GiB of memory from NUMA nodes 0-1\n"
        "B  pod gone (init): nothing any more\n"
    )


def test_sockets_without_numa_nodes_of_their_own():
    """One NUMA node that two sockets share has its memory drawn once."""
    machine = replace(MACHINE, sockets=(*MACHINE.sockets, replace(MACHINE.sockets[0], id=1)))
    lines = draw_topology(machine).splitlines()
    assert lines[7:10] == ["", "socket 1", "  NUMA node 0"]


def test_no_line_of_cores_is_wider_than_a_terminal():
    cores = tuple(core(n, LogicalCpu(id=n, **SHARED), LogicalCpu(id=n + 128, **SHARED)) for n in range(128))
    group = CoreGroup(numa_node=0, cores=cores)
    machine = replace(MACHINE, sockets=(CpuSocket(id=0, groups=(group,)),), holders=())
    lines = [line for line in draw_topology(machine).splitlines() if line.startswith("    [")]
    assert max(map(len, lines)) <= 96
    assert "".join(lines).count("[") == 128


def test_a_machine_of_which_nothing_is_known():
    assert draw_topology(MachineTopology(node="n")) == (
        "n: 0 sockets, 0 NUMA nodes, 0 cores, 0 CPUs\n"
        "policies: CPU , memory , topology  (scope )\n"
        "\n"
        ".  shared: no CPUs\n"
    )


def test_after_the_letters_come_pairs_of_them():
    holders = tuple(ResourceHolder(namespace="d", pod=f"p{n}", uid="u", container="c", cpus=(n,)) for n in range(28))
    lines = draw_topology(replace(MACHINE, holders=holders)).splitlines()[-3:]
    assert [line.partition(" ")[0] for line in lines] == ["Z", "AA", "AB"]
