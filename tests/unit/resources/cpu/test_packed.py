"""CPUs that are near one another: upstream's examples, on the machines that they are about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.host.machine.info import Cpu
from klet.resources.cpu.packed import CpuOrder, TooFewCpus, take_packed
from klet.resources.cpu.topology import build_topology
from klet.testing.machines import SMALL, TWO_SOCKETS, XEON_2S_CLUSTERED, MachineShape, list_cpus

T1, T2, T3 = (build_topology(list_cpus(shape)) for shape in (SMALL, TWO_SOCKETS, XEON_2S_CLUSTERED))
CACHES_OF_4 = build_topology(list_cpus(MachineShape(cores_per_node=16, threads=1, cores_per_cache=4)))
SMT_CACHES = build_topology(list_cpus(MachineShape(cores_per_node=8, cores_per_cache=4)))
ALL = "all"


def cpus(topology, text):
    return topology.cpus if text == ALL else parse_cpu_list(text)


@pytest.mark.parametrize(
    ("topology", "available", "count", "expected"),
    [
        pytest.param(T1, ALL, 0, "", id="none"),
        pytest.param(T1, ALL, 1, "0", id="the first"),
        pytest.param(T1, "1,3,5-7", 1, "6", id="of a core that has one left"),
        pytest.param(T1, ALL, 2, "0,4", id="a core"),
        pytest.param(T1, "0-3,6", 2, "2,6", id="a whole core before two halves"),
        pytest.param(T2, ALL, 6, "0,2,4,6,8,10", id="a NUMA node"),
        pytest.param(T2, "1-5,7-11", 1, "2", id="of the NUMA node with fewer left"),
        pytest.param(T2, ALL, 8, "0-2,4,6-8,10", id="a NUMA node and a core"),
        pytest.param(T3, ALL, 40, "0-19,40-59", id="a socket"),
        pytest.param(T3, ALL, 20, "0-9,40-49", id="a NUMA node below a socket"),
        pytest.param(T3, "10-39,50-79", 20, "10-19,50-59", id="the NUMA node of the socket that has one left"),
        pytest.param(T3, ALL, 60, "0-29,40-69", id="a socket and a NUMA node"),
        pytest.param(T3, "1-39,41-79", 60, "10-39,50-79", id="a whole socket, and the whole NUMA node of the other"),
        pytest.param(T3, ALL, 64, "0-31,40-71", id="a socket, a NUMA node and two cores"),
    ],
)
def test_examples(topology, available, count, expected):
    found = take_packed(topology, cpus(topology, available), count)
    assert isinstance(found, frozenset)
    assert format_cpu_list(found) == expected


@pytest.mark.parametrize(
    ("topology", "available", "count", "expected"),
    [
        pytest.param(T1, ALL, 4, "0-3", id="one thread of each core"),
        pytest.param(T1, "1-7", 4, "1-4", id="by number"),
        pytest.param(T2, ALL, 4, "0,2,4,6", id="in one socket"),
        pytest.param(T2, ALL, 8, "0-4,6,8,10", id="a whole NUMA node first"),
    ],
)
def test_spread(topology, available, count, expected):
    found = take_packed(topology, cpus(topology, available), count, order=CpuOrder.SPREAD)
    assert isinstance(found, frozenset)
    assert format_cpu_list(found) == expected


@pytest.mark.parametrize(
    ("topology", "available", "count", "expected"),
    [
        pytest.param(CACHES_OF_4, "1-15", 10, "1-2,4-11", id="two whole caches, the rest from one"),
        pytest.param(SMT_CACHES, "2-7,10-15", 6, "4-6,12-14", id="three cores of one cache"),
        pytest.param(SMT_CACHES, "1-7,9-15", 10, "1,4-7,9,12-15", id="a whole cache and a core"),
        pytest.param(SMT_CACHES, ALL, 3, "0-1,8", id="of the last core one thread"),
        pytest.param(SMT_CACHES, "0,1,4,5", 3, "0-1,4", id="no cache has that many"),
    ],
)
def test_by_cache(topology, available, count, expected):
    found = take_packed(topology, cpus(topology, available), count, by_cache=True)
    assert isinstance(found, frozenset)
    assert format_cpu_list(found) == expected


def test_too_few():
    found = take_packed(T1, frozenset({0, 2, 4, 6}), 5)
    assert found == TooFewCpus(5, 4)
    assert isinstance(found, TooFewCpus)
    assert found.message == "not enough cpus available to satisfy request: requested=5, available=4"


def test_a_core_that_is_larger_than_the_average_is_not_taken_with_cpus_of_others():
    # Two cores with two threads and two with one: upstream counts 1 CPU per core, takes core {0, 1} for a free one
    # while only CPU 0 is, and gives CPU 1 a second time.
    hybrid = build_topology(
        [Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 0), Cpu(2, 1, 0, 0), Cpu(3, 1, 0, 0), Cpu(4, 2, 0, 0), Cpu(5, 3, 0, 0)]
    )
    assert take_packed(hybrid, frozenset({0, 2, 3, 4}), 3) == {0, 2, 4}


@given(
    available=st.frozensets(st.integers(0, 79)),
    count=st.integers(0, 80),
    order=st.sampled_from(CpuOrder),
    by_cache=st.booleans(),
)
def test_as_many_as_asked_for_and_none_that_is_not_available(available, count, order, by_cache):
    found = take_packed(T3, available, count, order=order, by_cache=by_cache)
    if count > len(available):
        assert found == TooFewCpus(count, len(available))
    else:
        assert isinstance(found, frozenset)
        assert len(found) == count
        assert found <= available
