"""The settings of the memory and topology managers, and which of them do not fit a machine."""

import pytest
from msgspec.structs import replace

from klet.api.quantity import Quantity
from klet.config.defaults import default_configuration
from klet.config.errors import ConfigError
from klet.config.gates import resolve_gates
from klet.config.sections import MemoryReservation
from klet.host.machine.info import MachineInfo, NumaNode
from klet.resources.settings import (
    MemoryManagerSettings,
    check_topology_manager,
    cut_memory_manager_settings,
    cut_topology_rules,
)
from klet.resources.topology.rules import TopologyPolicy, TopologyRules, TopologyScope

GIB = 1 << 30
PAGES = {2 << 20: 512}
MACHINE = MachineInfo(
    cpus=4,
    memory=16 * GIB,
    numa_nodes=tuple(
        NumaNode(number=n, memory=8 * GIB, hugepages=PAGES, distances={0: 10 + 11 * n, 1: 21 - 11 * n}) for n in (0, 1)
    ),
)
CLOSEST = {"prefer-closest-numa-nodes": "true"}


def config(**fields):
    return replace(default_configuration(resolve_gates({})), **fields)


def reserve(*entries):
    return tuple(
        MemoryReservation(numa_node=node, limits={name: Quantity.parse(text) for name, text in limits.items()})
        for node, limits in entries
    )


def kept(**amounts):
    return {name.replace("_", "-"): Quantity.parse(text) for name, text in amounts.items()}


def test_the_policy_none_needs_nothing():
    assert cut_memory_manager_settings(config(), MACHINE, kept(memory="1Gi")) == MemoryManagerSettings()
    # As upstream, reservations by node are not looked at then.
    odd = config(reserved_memory=reserve((9, {"memory": "1Gi"})))
    assert cut_memory_manager_settings(odd, MACHINE, {}) == MemoryManagerSettings()


def test_reserved_memory_of_each_node():
    own = config(
        memory_manager_policy="Static",
        reserved_memory=reserve((0, {"memory": "1Gi", "hugepages-2Mi": "2Mi"}), (1, {"memory": "100Mi"})),
    )
    found = cut_memory_manager_settings(
        own, MACHINE, kept(memory="1124Mi", cpu="1") | {"hugepages-2Mi": Quantity.parse("2Mi")}
    )
    assert found.policy == "Static"
    assert {n: t.memory_map["memory"].system_reserved >> 20 for n, t in found.empty.items()} == {0: 1024, 1: 100}
    assert found.empty[0].memory_map["hugepages-2Mi"].system_reserved == 2 << 20


@pytest.mark.parametrize(
    ("reserved", "node_allocatable", "message"),
    [
        pytest.param([(3, {"memory": "1Gi"})], kept(memory="1Gi"), "the reserved memory configuration references a "
                     "NUMA node 3 that does not exist on this machine", id="a node that is not there"),
        pytest.param([(0, {"memory": "1Gi"})], kept(memory="1124Mi"), 'the total amount "1Gi" of type "memory" is not '
                     'equal to the value "1124Mi" determined by Node Allocatable feature', id="less than is kept"),
        pytest.param([(0, {"memory": "1Gi"}), (1, {"hugepages-2Mi": "2Mi"})], kept(memory="1Gi"), 'the total amount '
                     '"2Mi" of type "hugepages-2Mi" is not equal to the value "0" determined by Node Allocatable',
                     id="pages that nobody keeps"),
        pytest.param([], {}, "[memorymanager] you should specify the system reserved memory", id="nothing"),
        pytest.param([(0, {"memory": "7Gi"}), (1, {"memory": "1Gi"})], kept(memory="8Gi"), None, id="a whole node"),
        pytest.param([(0, {"memory": "9Gi"})], kept(memory="9Gi"), "NUMA node 0 has 8589934592 bytes of memory, and of "
                     "what huge pages leave 9663676416 are reserved", id="more than the node has"),
        pytest.param([(0, {"memory": "1500m"})], kept(memory="1500m"), "could not covert a variable of type Quantity "
                     "to int64", id="no number of bytes"),
    ],
)  # fmt: skip
def test_reservations_that_do_not_fit(reserved, node_allocatable, message):
    own = config(memory_manager_policy="Static", reserved_memory=reserve(*reserved))
    if message is None:
        cut_memory_manager_settings(own, MACHINE, node_allocatable)
        return
    with pytest.raises(ConfigError) as caught:
        cut_memory_manager_settings(own, MACHINE, node_allocatable)
    assert str(caught.value).startswith(message)


def test_pages_of_a_size_that_the_machine_lacks():
    gib = {"hugepages-1Gi": Quantity.parse("1Gi"), "memory": Quantity.parse("1Gi")}
    own = config(
        memory_manager_policy="Static", reserved_memory=reserve((0, {"memory": "1Gi", "hugepages-1Gi": "1Gi"}))
    )
    with pytest.raises(ConfigError, match="NUMA node 0 has no hugepages-1Gi, of which some is reserved"):
        cut_memory_manager_settings(own, MACHINE, gib)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, TopologyRules(nodes=(0, 1)), id="none by default"),
        pytest.param(
            {"topology_manager_policy": "restricted", "topology_manager_scope": "pod"},
            TopologyRules(policy=TopologyPolicy.RESTRICTED, scope=TopologyScope.POD, nodes=(0, 1)),
            id="a policy and a scope",
        ),
        pytest.param(
            {"topology_manager_policy": "best-effort", "topology_manager_policy_options": CLOSEST},
            TopologyRules(
                policy=TopologyPolicy.BEST_EFFORT, nodes=(0, 1), distances={0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}}
            ),
            id="close nodes",
        ),
        pytest.param({"topology_manager_policy_options": CLOSEST}, TopologyRules(nodes=(0, 1)), id="options of none"),
    ],
)
def test_rules_of_the_topology_manager(fields, expected):
    assert cut_topology_rules(config(**fields), MACHINE) == expected


NINE = replace(MACHINE, numa_nodes=tuple(NumaNode(number=n) for n in range(9)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({}, "unsupported on machines with more than 8 NUMA Nodes: this one has 9", id="nine nodes"),
        pytest.param({"max-allowable-numa-nodes": "9"}, None, id="nine nodes that are allowed"),
        pytest.param(
            CLOSEST | {"max-allowable-numa-nodes": "16"},
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor", id="no distances",
        ),
    ],
)  # fmt: skip
def test_machines_that_are_not_supported(fields, message):
    check_topology_manager(config(topology_manager_policy_options=fields), NINE)
    own = config(topology_manager_policy="restricted", topology_manager_policy_options=fields)
    if message is None:
        check_topology_manager(own, NINE)
        return
    with pytest.raises(ConfigError) as caught:
        check_topology_manager(own, NINE)
    assert str(caught.value).startswith(message)
