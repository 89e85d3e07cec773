"""Builds what hands the pod CIDRs of the node to the runtime, and to klet's own bridge network if that is used."""

from klet.app.ports import BasePorts
from klet.config.command_line import Settings
from klet.model.roles import Part
from klet.node.bridge_network import BridgeNames, BridgeNetwork
from klet.node.pod_cidrs import CidrUser, ConfiguredCidrs, PodCidrs, RuntimeCidrs


def build_pod_cidrs(given: Settings, base: BasePorts) -> PodCidrs:
    """Return the users of the pod CIDRs. The runtime is last: it looks for a network when it gets them."""
    users: list[CidrUser] = [RuntimeCidrs(runtime=base.runtime)]
    if given.klet.bridge_network:
        users.insert(0, BridgeNetwork(runtime=base.runtime, names=BridgeNames(), threads=base.threads))
    return PodCidrs(users=users)


def build_configured_cidrs(given: Settings, base: BasePorts) -> tuple[Part, ...]:
    """Return what hands over `podCIDR`, if it is set, on a node without an API server."""
    wanted = tuple(cidr.strip() for cidr in given.config.pod_cidr.split(",") if cidr.strip())
    if not wanted:
        return ()
    cidrs = build_pod_cidrs(given, base)
    until_prepared = base.contact.until_prepared
    return (ConfiguredCidrs(cidrs=cidrs, wanted=wanted, until_prepared=until_prepared, clock=base.clock),)
