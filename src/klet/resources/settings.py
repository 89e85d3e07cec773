"""Cuts the configuration of the resource managers, and checks it against the machine. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from klet.api.quantity import Quantity
from klet.api.validation.rendering import go_quote
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError
from klet.config.flagvalues import parse_bool
from klet.config.manager_options import CLOSEST, FEWEST_NODES, MOST_NODES
from klet.host.machine.info import MachineInfo
from klet.resources.memory.reservations import compute_reserved_memory
from klet.resources.memory.state_file import NO_POLICY, STATIC
from klet.resources.memory.tables import NodeTables, build_tables
from klet.resources.topology.rules import TopologyPolicy, TopologyRules, TopologyScope


class MemoryManagerSettings(Struct, frozen=True, kw_only=True):
    """Whether containers get memory of their own NUMA nodes, and what those have."""

    policy: str = NO_POLICY
    empty: NodeTables = {}
    """What the NUMA nodes have while it is given to nobody; none with the policy None."""


def cut_memory_manager_settings(
    config: KubeletConfiguration, machine: MachineInfo, node_allocatable: Mapping[str, Quantity]
) -> MemoryManagerSettings:
    """Return what the memory manager gives out; raises ConfigError if the reservations do not fit this machine.

    `node_allocatable` is what the node keeps from pods.
    """
    if config.memory_manager_policy != STATIC:
        return MemoryManagerSettings()
    reserved = compute_reserved_memory(machine.numa_nodes, node_allocatable, config.reserved_memory)
    return MemoryManagerSettings(policy=STATIC, empty=build_tables(machine.numa_nodes, reserved))


def cut_topology_rules(config: KubeletConfiguration, machine: MachineInfo) -> TopologyRules:
    """Return how the topology manager merges hints."""
    policy = TopologyPolicy(config.topology_manager_policy)
    wants_close = policy is not TopologyPolicy.NONE and prefers_closest(config)
    return TopologyRules(
        policy=policy,
        scope=TopologyScope(config.topology_manager_scope),
        nodes=tuple(node.number for node in machine.numa_nodes),
        distances={node.number: node.distances for node in machine.numa_nodes} if wants_close else None,
    )


def check_topology_manager(config: KubeletConfiguration, machine: MachineInfo) -> None:
    """Raise ConfigError if the topology manager cannot work on this machine. With the policy none it always can."""
    if config.topology_manager_policy == TopologyPolicy.NONE:
        return
    if prefers_closest(config) and not all(node.distances for node in machine.numa_nodes):
        raise ConfigError(
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor: the kernel does not report "
            f"them, take {CLOSEST} out of topologyManagerPolicyOptions (--topology-manager-policy-options)"
        )
    most = int(config.topology_manager_policy_options.get(MOST_NODES, FEWEST_NODES))
    if len(machine.numa_nodes) > most:
        raise ConfigError(
            f"unsupported on machines with more than {most} NUMA Nodes: this one has {len(machine.numa_nodes)}, "
            f"raise {go_quote(MOST_NODES)} in topologyManagerPolicyOptions (--topology-manager-policy-options)"
        )


def prefers_closest(config: KubeletConfiguration) -> bool:
    return parse_bool(config.topology_manager_policy_options.get(CLOSEST, "false"))
