"""Which addresses a node reports."""

from ipaddress import ip_address

import pytest

from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeAddress, NodeStatus
from klet.host.addresses import AddressFacts
from klet.model.unknown import Unknown
from klet.node.addresses import PROVIDED_IP, find_address_problem, host_ips, needs_lookup, set_addresses
from klet.node.settings import NodeSettings

FOUR, OTHER_FOUR, SIX = ip_address("10.0.0.1"), ip_address("10.0.0.2"), ip_address("fd00::1")
LOCAL = frozenset({FOUR, OTHER_FOUR, SIX})
ZEROS, SIX_ZEROS = ip_address("0.0.0.0"), ip_address("::")
OWN = (NodeAddress(type="InternalIP", address="192.0.2.7"), NodeAddress(type="ExternalIP", address="198.51.100.1"))


def a_node(*addresses: NodeAddress, **annotations: str) -> Node:
    shown = {name.replace("_", "-"): text for name, text in annotations.items()}
    return Node(metadata=ObjectMeta(name="n1", annotations=shown), status=NodeStatus(addresses=addresses))


def recorded(node: Node | Unknown) -> list[str]:
    assert isinstance(node, Node)
    return [f"{each.type}={each.address}" for each in node.status.addresses]


def facts(*looked_up, default=FOUR) -> AddressFacts:
    return AddressFacts(local=LOCAL, looked_up=looked_up, default=default)


@pytest.mark.parametrize(
    ("ips", "external", "node", "seen", "expected", "annotation"),
    [
        pytest.param((), True, a_node(*OWN), facts(), ["InternalIP=192.0.2.7", "ExternalIP=198.51.100.1"], None,
                     id="a cloud's addresses are left alone"),
        pytest.param((FOUR,), True, a_node(*OWN), facts(), ["InternalIP=192.0.2.7", "ExternalIP=198.51.100.1"],
                     "10.0.0.1", id="a cloud's addresses are left alone and the chosen one is annotated"),
        pytest.param((), True, a_node(), facts(), ["Hostname=n1"], None,
                     id="a node that waits for its cloud has only a name"),
        pytest.param((ZEROS,), True, a_node(), facts(), ["InternalIP=10.0.0.1", "Hostname=n1"], None,
                     id="with a cloud and zeros the default route decides, and nothing is annotated"),
        pytest.param((FOUR,), True, a_node(), facts(), ["InternalIP=10.0.0.1", "Hostname=n1"], "10.0.0.1",
                     id="with a cloud and one address"),
        pytest.param((FOUR, SIX), True, a_node(), facts(),
                     ["InternalIP=10.0.0.1", "InternalIP=fd00::1", "Hostname=n1"], "10.0.0.1,fd00::1",
                     id="with a cloud and two addresses"),
        pytest.param((SIX, FOUR), False, a_node(), facts(),
                     ["InternalIP=fd00::1", "InternalIP=10.0.0.1", "Hostname=n1"], None,
                     id="two addresses stay in their order"),
        pytest.param((OTHER_FOUR,), False, a_node(), facts(), ["InternalIP=10.0.0.2", "Hostname=n1"], None,
                     id="one address"),
        pytest.param((OTHER_FOUR,), False, a_node(*OWN), facts(), ["InternalIP=10.0.0.2", "Hostname=n1"], None,
                     id="without a cloud the addresses are ours"),
        pytest.param((), False, a_node(), facts(SIX, OTHER_FOUR), ["InternalIP=10.0.0.2", "Hostname=n1"], None,
                     id="of what the resolver says IPv4 is preferred"),
        pytest.param((SIX_ZEROS,), False, a_node(), facts(OTHER_FOUR, SIX), ["InternalIP=fd00::1", "Hostname=n1"],
                     None, id="IPv6 zeros prefer IPv6"),
        pytest.param((ZEROS,), False, a_node(), facts(SIX), ["InternalIP=fd00::1", "Hostname=n1"], None,
                     id="an address of the other family is better than none"),
        pytest.param((), False, a_node(), facts(ip_address("127.0.1.1"), ip_address("10.9.9.9")),
                     ["InternalIP=10.0.0.1", "Hostname=n1"], None,
                     id="what the resolver says must be an address of the machine"),
        pytest.param((), False, a_node(), facts(), ["InternalIP=10.0.0.1", "Hostname=n1"], None,
                     id="the last resort is the default route"),
    ],
)  # fmt: skip
def test_set_addresses(ips, external, node, seen, expected, annotation):
    settings = NodeSettings(name="n1", node_ips=ips, has_external_cloud=external)
    found = set_addresses(node, seen, settings)
    assert recorded(found) == expected
    assert found.metadata.annotations.get(PROVIDED_IP) == annotation


def test_a_name_that_is_an_address():
    found = set_addresses(a_node(), facts(OTHER_FOUR), NodeSettings(name="10.7.7.7"))
    assert recorded(found) == ["InternalIP=10.7.7.7", "Hostname=10.7.7.7"]


def test_the_annotation_goes_when_the_cloud_does():
    node = Node(metadata=ObjectMeta(name="n1", annotations={PROVIDED_IP: "10.0.0.1", "mine": "yes"}))
    found = set_addresses(node, facts(), NodeSettings(name="n1", node_ips=(FOUR,)))
    assert found.metadata.annotations == {"mine": "yes"}


@pytest.mark.parametrize(
    ("ips", "seen", "why"),
    [
        pytest.param((ip_address("10.9.9.9"),), facts(),
                     'failed to validate nodeIP: node IP: "10.9.9.9" not found in the host\'s network interfaces',
                     id="an address of another machine"),
        pytest.param((FOUR, ip_address("fd00::9")), facts(),
                     'failed to validate secondaryNodeIP: node IP: "fd00::9" not found in the host\'s network '
                     "interfaces", id="a second address of another machine"),
        pytest.param((), facts(default=Unknown("no default routes found")),
                     "can't get ip address of node n1. error: no default routes found", id="nothing at all is known"),
    ],
)  # fmt: skip
def test_addresses_that_cannot_be_determined(ips, seen, why):
    assert set_addresses(a_node(), seen, NodeSettings(name="n1", node_ips=ips)) == Unknown(why)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param("127.0.0.1", "nodeIP can't be loopback address", id="loopback"),
        pytest.param("::1", "nodeIP can't be loopback address", id="IPv6 loopback"),
        pytest.param("224.0.0.1", "nodeIP can't be a multicast address", id="multicast"),
        pytest.param("ff02::1", "nodeIP can't be a multicast address", id="IPv6 multicast"),
        pytest.param("169.254.1.1", "nodeIP can't be a link-local unicast address", id="link-local"),
        pytest.param("fe80::1", "nodeIP can't be a link-local unicast address", id="IPv6 link-local"),
        pytest.param("0.0.0.0", "nodeIP can't be an all zeros address", id="zeros"),
        pytest.param("::", "nodeIP can't be an all zeros address", id="IPv6 zeros"),
        pytest.param("10.0.0.1", "", id="an address of the machine"),
    ],
)
def test_find_address_problem(address, problem):
    assert find_address_problem(ip_address(address), LOCAL) == problem


@pytest.mark.parametrize(
    ("settings", "node", "expected"),
    [
        pytest.param(NodeSettings(name="n1"), a_node(), True, id="no address was given"),
        pytest.param(NodeSettings(name="n1", node_ips=(ZEROS,)), a_node(), True, id="only a family was given"),
        pytest.param(NodeSettings(name="n1", node_ips=(FOUR,)), a_node(), False, id="an address was given"),
        pytest.param(NodeSettings(name="10.7.7.7"), a_node(), False, id="the name is an address"),
        pytest.param(NodeSettings(name="n1", has_external_cloud=True), a_node(), False, id="the cloud will report"),
        pytest.param(NodeSettings(name="n1", node_ips=(ZEROS,), has_external_cloud=True), a_node(), True,
                     id="a family was given besides the cloud"),
        pytest.param(NodeSettings(name="n1", node_ips=(ZEROS,), has_external_cloud=True), a_node(*OWN), False,
                     id="the cloud has reported"),
    ],
)  # fmt: skip
def test_needs_lookup(settings, node, expected):
    assert needs_lookup(node, settings) is expected


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        pytest.param([], (), id="none"),
        pytest.param([("Hostname", "n1"), ("InternalIP", "10.0.0.1")], ("10.0.0.1",), id="names are no addresses"),
        pytest.param(
            [("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1")], ("10.0.0.1",), id="internal ones first"
        ),
        pytest.param(
            [("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::1")],
            ("10.0.0.1", "fd00::1"),
            id="one of each family",
        ),
        pytest.param(
            [("InternalIP", "nonsense"), ("InternalIP", "FD00:0::1")], ("fd00::1",), id="what is no address is left out"
        ),
        pytest.param([("InternalIP", "fd00::1"), ("ExternalIP", "192.0.2.1")], ("fd00::1", "192.0.2.1"), id="in order"),
    ],
)
def test_host_ips(addresses, expected):
    status = NodeStatus(addresses=tuple(NodeAddress(type=kind, address=text) for kind, text in addresses))
    assert host_ips(Node(status=status)) == expected
