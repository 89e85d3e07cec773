"""Which addresses the node reports (upstream: the NodeAddress setter). Pure."""

from typing import Final

from msgspec.structs import replace

from klet.api.node import Node, NodeAddress
from klet.api.validation.formats import parse_ip
from klet.host.addresses import AddressFacts, IPAddress
from klet.model.network import ip_family
from klet.model.unknown import Unknown
from klet.node.settings import NodeSettings

INTERNAL_IP: Final = "InternalIP"
EXTERNAL_IP: Final = "ExternalIP"
HOSTNAME: Final = "Hostname"
PROVIDED_IP: Final = "alpha.kubernetes.io/provided-node-ip"
"""The annotation with the addresses that the administrator has chosen, for the cloud controller."""


def set_addresses(node: Node, facts: AddressFacts, settings: NodeSettings) -> Node | Unknown:
    """Return the node with its addresses and their annotation; Unknown leaves both as they are."""
    given = tuple(address for address in settings.node_ips if not address.is_unspecified)
    for name, address in zip(("nodeIP", "secondaryNodeIP"), given, strict=False):
        if problem := find_address_problem(address, facts.local):
            return Unknown(f"failed to validate {name}: {problem}")
    node = _annotated(node, given, settings)
    if settings.has_external_cloud and node.status.addresses:
        return node  # what the cloud controller has set takes precedence
    if given:
        return _with(node, given, settings)
    if settings.has_external_cloud and not settings.node_ips:
        return _with(node, (), settings)
    found = choose_address(facts, settings)
    return found if isinstance(found, Unknown) else _with(node, (found,), settings)


def host_ips(node: Node) -> tuple[str, ...]:
    """Return the addresses that pods on the host's network have: the first one, and one of the other family, if any."""
    kinds = (INTERNAL_IP, EXTERNAL_IP)
    every = (parse_ip(each.address) for kind in kinds for each in node.status.addresses if each.type == kind)
    found = [str(address) for address in every if address is not None]
    others = [address for address in found if ip_family(address) != ip_family(found[0])]
    return (*found[:1], *others[:1])


def needs_lookup(node: Node, settings: NodeSettings) -> bool:
    """Return whether the resolver has to be asked: it may take long."""
    if any(not address.is_unspecified for address in settings.node_ips) or parse_ip(settings.name) is not None:
        return False
    return not settings.has_external_cloud or (bool(settings.node_ips) and not node.status.addresses)


def choose_address(facts: AddressFacts, settings: NodeSettings) -> IPAddress | Unknown:
    """Return the name itself if it is an address, else the resolver's answer, else that of the default route."""
    if (own := parse_ip(settings.name)) is not None:
        return own
    version = preferred_version(settings)
    usable = [address for address in facts.looked_up if not find_address_problem(address, facts.local)]
    if usable:
        return next((address for address in usable if address.version == version), usable[0])
    if isinstance(facts.default, Unknown):
        return Unknown(f"can't get ip address of node {settings.name}. error: {facts.default.why}")
    return facts.default


def preferred_version(settings: NodeSettings) -> int:
    """Return the family that is chosen where there is a choice."""
    return settings.node_ips[0].version if settings.node_ips else 4


def prefers_ipv6(settings: NodeSettings) -> bool:
    """Return whether IPv6 is the primary family of the node, by which the addresses of its pods are ordered."""
    return preferred_version(settings) == 6


def find_address_problem(address: IPAddress, local: frozenset[IPAddress]) -> str:
    """Return why this cannot be the address of the node; empty if it can."""
    if address.is_loopback:
        return "nodeIP can't be loopback address"
    if address.is_multicast:
        return "nodeIP can't be a multicast address"
    if address.is_link_local:
        return "nodeIP can't be a link-local unicast address"
    if address.is_unspecified:
        return "nodeIP can't be an all zeros address"
    return "" if address in local else f'node IP: "{address}" not found in the host\'s network interfaces'


def _annotated(node: Node, given: tuple[IPAddress, ...], settings: NodeSettings) -> Node:
    annotations = {name: text for name, text in node.metadata.annotations.items() if name != PROVIDED_IP}
    if settings.has_external_cloud and given:
        annotations[PROVIDED_IP] = ",".join(map(str, given))
    if annotations == node.metadata.annotations:
        return node
    return replace(node, metadata=replace(node.metadata, annotations=annotations))


def _with(node: Node, ips: tuple[IPAddress, ...], settings: NodeSettings) -> Node:
    addresses = (
        *(NodeAddress(type=INTERNAL_IP, address=str(ip)) for ip in ips),
        NodeAddress(type=HOSTNAME, address=settings.name),
    )
    return replace(node, status=replace(node.status, addresses=addresses))
