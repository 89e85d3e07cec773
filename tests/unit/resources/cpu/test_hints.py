"""The NUMA nodes that could give a container its CPUs: upstream's examples."""

import pytest

from klet.host.cpulist import parse_cpu_list
from klet.resources.cpu.hints import compute_hints
from klet.resources.cpu.topology import build_topology
from klet.resources.topology.hints import nodes_of
from klet.testing.machines import TWO_SOCKETS, XEON_2S_CLUSTERED, list_cpus

T2, T3 = (build_topology(list_cpus(shape)) for shape in (TWO_SOCKETS, XEON_2S_CLUSTERED))
WITHOUT_0_2_8 = "1,3-7,9-11"


def shown(hints):
    return [f"{''.join(map(str, nodes_of(each.mask)))}{'P' if each.preferred else 'n'}" for each in hints]


@pytest.mark.parametrize(
    ("topology", "available", "reusable", "count", "expected"),
    [
        pytest.param(T2, WITHOUT_0_2_8, "", 4, "1P 01n", id="the other node has too few left"),
        pytest.param(T2, WITHOUT_0_2_8, "", 8, "01P", id="no node has so many"),
        pytest.param(T2, WITHOUT_0_2_8, "", 12, "", id="nowhere"),
        pytest.param(T2, "0-11", "", 1, "0P 1P 01n", id="anywhere"),
        pytest.param(T2, "1,3,5,7,9,11", "0,6", 2, "0P 01n", id="only where the pod has some already"),
        pytest.param(T2, "", "1,3", 2, "1P 01n", id="what the pod has already is enough"),
        pytest.param(T2, "", "0,1", 2, "01n", id="what the pod has is on two nodes"),
        pytest.param(
            T3, "10-39,50-79", "", 15, "1P 2P 3P 01n 02n 03n 12n 13n 23n 012n 013n 023n 123n 0123n", id="four"
        ),
    ],
)
def test_hints(topology, available, reusable, count, expected):
    found = compute_hints(topology, parse_cpu_list(available), parse_cpu_list(reusable), count)
    assert shown(found) == expected.split()


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(10, "0P 1P 2P 3P 01P 02n 03n 12n 13n 23P 012n 013n 023n 123n 0123n", id="within one socket"),
        pytest.param(50, "012P 013P 023P 123P 0123P", id="two sockets are needed"),
    ],
)
def test_by_socket(count, expected):
    found = compute_hints(T3, T3.cpus, frozenset(), count, by_socket=True)
    assert shown(found) == expected.split()


def test_by_socket_where_a_node_has_several_sockets():
    wide = build_topology([*list_cpus(TWO_SOCKETS)][:1])
    assert shown(compute_hints(wide, wide.cpus, frozenset(), 1, by_socket=True)) == ["0P"]
