"""The CPUs that the static policy keeps, and the machines that do not suit it."""

import pytest

from klet.config.errors import ConfigError
from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import Cpu
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy, parse_options
from klet.resources.cpu.topology import build_topology
from klet.testing.machines import SMALL, TWO_SOCKETS, XEON_2S_CLUSTERED, MachineShape, list_cpus

T1, T2, T3 = (build_topology(list_cpus(shape)) for shape in (SMALL, TWO_SOCKETS, XEON_2S_CLUSTERED))
PLAIN = CpuPolicyOptions()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, PLAIN, id="none"),
        pytest.param(
            {"full-pcpus-only": "T", "strict-cpu-reservation": "1", "distribute-cpus-across-numa": "True"},
            CpuPolicyOptions(full_cores=True, strict_reservation=True, across_numa=True),
            id="three",
        ),
        pytest.param(
            {"align-by-socket": "true", "distribute-cpus-across-cores": "t", "full-pcpus-only": "F"},
            CpuPolicyOptions(by_socket=True, across_cores=True),
            id="one is switched off",
        ),
        pytest.param({"prefer-align-cpus-by-uncorecache": "TRUE"}, CpuPolicyOptions(by_cache=True), id="caches"),
    ],
)
def test_options(options, expected):
    assert parse_options(options) == expected


@pytest.mark.parametrize(
    ("topology", "options", "count", "specific", "reserved", "cores"),
    [
        pytest.param(T1, PLAIN, 1, "", "0", "0,4", id="one CPU, whose sibling shares its core"),
        pytest.param(T1, PLAIN, 2, "", "0,4", "0,4", id="a core"),
        pytest.param(T2, PLAIN, 2, "5,11", "5,11", "5,11", id="named ones"),
        pytest.param(T2, PLAIN, 2, "3,4", "3-4", "3-4,9-10", id="named ones of two cores"),
        pytest.param(T3, CpuPolicyOptions(across_numa=True), 22, "", "0-5,10-15,40-44,50-54", None, id="distributed"),
        pytest.param(T1, CpuPolicyOptions(across_cores=True), 3, "", "0-2", "0-2,4-6", id="spread"),
    ],
)
def test_reserved(topology, options, count, specific, reserved, cores):
    named = frozenset(map(int, specific.split(","))) if specific else frozenset()
    policy = build_static_policy(topology, options, reserved=count, specific=named)
    assert format_cpu_list(policy.reserved) == reserved
    if cores is not None:
        assert format_cpu_list(policy.reserved_cores) == cores


@pytest.mark.parametrize(
    ("topology", "options", "count", "specific", "message"),
    [
        pytest.param(
            T1,
            PLAIN,
            9,
            (),
            "[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9): "
            "lower cpu in systemReserved or kubeReserved, or set reservedSystemCPUs",
            id="more than there are",
        ),
        pytest.param(
            T1,
            PLAIN,
            2,
            (99, 100),
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 99: "
            "see reservedSystemCPUs (--reserved-cpus)",
            id="not there",
        ),
        pytest.param(
            build_topology(list_cpus(TWO_SOCKETS)[:1]),
            PLAIN,
            1,
            (0, 1),
            "[cpumanager] unable to reserve the required amount of CPUs (size of 0-1 did not equal 1): "
            "lower cpu in systemReserved or kubeReserved, or set reservedSystemCPUs",
            id="other ones than counted",
        ),
    ],
)
def test_what_cannot_be_reserved(topology, options, count, specific, message):
    with pytest.raises(ConfigError) as caught:
        build_static_policy(topology, options, reserved=count, specific=frozenset(specific))
    assert str(caught.value) == f"new static policy error: {message}"


def test_aligned_by_sockets_that_are_smaller_than_numa_nodes():
    cpus = list_cpus(MachineShape(sockets=2, cores_per_node=2))
    topology = build_topology([Cpu(cpu.number, cpu.core, cpu.socket, node=0) for cpu in cpus])
    with pytest.raises(ConfigError, match=r"Align by socket is not compatible with hardware where number of sockets"):
        build_static_policy(topology, CpuPolicyOptions(by_socket=True), reserved=1, specific=frozenset())


@pytest.mark.parametrize(
    ("options", "nodes", "expected"),
    [
        pytest.param(PLAIN, {0}, "0-9,40-49", id="of the node"),
        pytest.param(CpuPolicyOptions(by_socket=True), {0}, "0-19,40-59", id="of its socket"),
        pytest.param(PLAIN, {9}, "", id="of a node that is not there"),
    ],
)
def test_near(options, nodes, expected):
    policy = build_static_policy(T3, options, reserved=1, specific=frozenset())
    assert format_cpu_list(policy.near(T3.cpus, frozenset(nodes))) == expected
