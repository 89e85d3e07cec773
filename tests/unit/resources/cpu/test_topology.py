"""The CPUs of real machines by the units that they are in."""

import pytest

from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import Cpu
from klet.resources.cpu.topology import UnknownTopology, build_topology
from klet.testing.machines import (
    EPYC_2S_NPS4,
    SMALL,
    TWO_SOCKETS,
    XEON_2S,
    XEON_2S_CLUSTERED,
    MachineShape,
    list_cpus,
    read_machine,
)


@pytest.mark.parametrize(
    ("shape", "sizes", "numa_first"),
    [
        pytest.param(SMALL, (8, 4, 1, 1, 1), True, id="one socket"),
        pytest.param(TWO_SOCKETS, (12, 6, 2, 2, 2), True, id="two sockets"),
        pytest.param(XEON_2S, (80, 40, 2, 2, 2), True, id="two large sockets"),
        pytest.param(XEON_2S_CLUSTERED, (80, 40, 2, 4, 2), False, id="clusters within sockets share a cache"),
        pytest.param(EPYC_2S_NPS4, (256, 128, 16, 8, 2), False, id="caches within NUMA nodes"),
    ],
)
def test_units_of_a_machine(tmp_path, shape, sizes, numa_first):
    machine = read_machine(tmp_path, shape)
    assert machine.topology == tuple(sorted(list_cpus(shape)))
    found = build_topology(machine.topology)
    assert (len(found.cpus), len(found.cores), len(found.caches), len(found.nodes), len(found.sockets)) == sizes
    assert found.cpus_per_core == 2
    assert found.cpus_per_socket == sizes[0] // sizes[4]
    assert found.cpus_per_cache == sizes[0] // sizes[2]
    assert found.is_numa_first is numa_first


def test_a_core_has_the_number_of_its_first_cpu():
    found = build_topology(list_cpus(TWO_SOCKETS))
    assert {core: format_cpu_list(cpus) for core, cpus in found.cores.items()} == {
        0: "0,6",
        1: "1,7",
        2: "2,8",
        3: "3,9",
        4: "4,10",
        5: "5,11",
    }


def test_cpus_that_are_offline_are_in_no_unit():
    cpus = [cpu for cpu in list_cpus(SMALL) if cpu.number not in {0, 5}]
    found = build_topology(cpus)
    assert {core: format_cpu_list(of) for core, of in found.cores.items()} == {1: "1", 2: "2,6", 3: "3,7", 4: "4"}
    assert found.cpus_per_core == 1


def test_cpus_that_are_not_known():
    with pytest.raises(UnknownTopology, match=r"^could not detect number of cpus: "):
        build_topology(())


def test_questions():
    found = build_topology(list_cpus(MachineShape(sockets=2, nodes_per_socket=2, cores_per_node=2, threads=1)))
    assert found.in_nodes((0, 3, 9)) == {0, 1, 6, 7}
    assert found.nodes_of({0, 1, 6}) == {0, 3}
    assert found.sockets_of_nodes((1, 2)) == {0, 1}
    assert found.is_in_one_cache({0, 1, 2, 3})
    assert not found.is_in_one_cache({0, 4})
    assert found.is_in_one_cache(())


def test_without_a_cache_of_some_cores_a_socket_counts():
    found = build_topology([Cpu(0, 0, 0, 0, 7), Cpu(1, 1, 0, 0, 7), Cpu(2, 0, 1, 1), Cpu(3, 1, 1, 1)])
    assert dict(found.caches) == {1: {2, 3}, 7: {0, 1}}
