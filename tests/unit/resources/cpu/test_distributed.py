"""The same number of CPUs from each NUMA node: upstream's examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.resources.cpu.distributed import take_distributed
from klet.resources.cpu.packed import CpuOrder, TooFewCpus
from klet.resources.cpu.topology import build_topology
from klet.testing.machines import TWO_SOCKETS, XEON_2S_CLUSTERED, MachineShape, list_cpus

T2, T3 = (build_topology(list_cpus(shape)) for shape in (TWO_SOCKETS, XEON_2S_CLUSTERED))
EIGHT_NODES = build_topology(list_cpus(MachineShape(sockets=2, nodes_per_socket=4, cores_per_node=16)))
SINGLE = build_topology(list_cpus(MachineShape(sockets=2, nodes_per_socket=4, cores_per_node=4, threads=1)))
ALL = "all"


@pytest.mark.parametrize(
    ("topology", "available", "count", "group", "expected"),
    [
        pytest.param(T3, ALL, 64, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77", id="over all four"),
        pytest.param(T3, ALL, 48, 1, "0-7,10-17,20-27,40-47,50-57,60-67", id="over three"),
        pytest.param(T3, ALL, 26, 1, "0-6,10-16,40-45,50-55", id="odd shares"),
        pytest.param(T3, ALL, 26, 2, "0-6,10-15,40-46,50-55", id="whole cores: one node has one more"),
        pytest.param(T3, ALL, 62, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76", id="a remainder"),
        pytest.param(T3, ALL, 7, 2, "0-3,40-42", id="not a multiple of a group: packed"),
        pytest.param(T3, "1-39,41-79", 40, 1, "10-29,50-69", id="the first of three equal pairs"),
        pytest.param(T3, "5-39,45-79", 40, 1, "10-29,50-69", id="the same with more taken"),
        pytest.param(T2, ALL, 8, 1, "0-3,6-9", id="two nodes"),
        pytest.param(T2, ALL, 4, 1, "0,2,6,8", id="one node is enough"),
        pytest.param(
            EIGHT_NODES,
            "0,128,30,31,158,159,43-47,171-175,62,63,190,191,75-79,203-207,94,96,222,223,101-111,229-239,126,127,254,255",
            28,
            1,
            "43-47,75-79,96,101-105,171-174,203-206,229-232",
            id="a machine in use",
        ),
        pytest.param(
            SINGLE, ALL, 16, 1, "0-15", id="four of eight nodes: the first ones, where upstream takes the last"
        ),
    ],
)
def test_examples(topology, available, count, group, expected):
    cpus = topology.cpus if available == ALL else parse_cpu_list(available)
    found = take_distributed(topology, cpus, count, group=group)
    assert isinstance(found, frozenset)
    assert format_cpu_list(found) == expected


def test_too_few():
    assert take_distributed(T2, frozenset({0, 1}), 3) == TooFewCpus(3, 2)


def test_odd_cpus_on_every_node():
    # Upstream looks without end for the third core of two nodes that have three CPUs left each.
    found = take_distributed(T3, parse_cpu_list("0-4,10-14,20-24"), 12, group=2)
    assert isinstance(found, frozenset)
    assert format_cpu_list(found) == "0-3,10-13,20-23"


@given(
    available=st.frozensets(st.integers(0, 79)),
    count=st.integers(0, 80),
    group=st.sampled_from((1, 2)),
    order=st.sampled_from(CpuOrder),
)
def test_as_many_as_asked_for_and_none_that_is_not_available(available, count, group, order):
    found = take_distributed(T3, available, count, group=group, order=order)
    if count > len(available):
        assert found == TooFewCpus(count, len(available))
    else:
        assert isinstance(found, frozenset)
        assert len(found) == count
        assert found <= available
