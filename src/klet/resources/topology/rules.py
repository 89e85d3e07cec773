"""What the topology manager is to do: policy, scope and the NUMA nodes of the machine (policy options). Pure values."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from klet.resources.topology.hints import NumaMask, mask_of


class TopologyPolicy(StrEnum):
    """Which pods are admitted by where their resources are."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyScope(StrEnum):
    """Whose resources come from the same NUMA nodes."""

    CONTAINER = "container"
    POD = "pod"


class TopologyRules(Struct, frozen=True, kw_only=True):
    """How hints are merged on this machine."""

    policy: TopologyPolicy = TopologyPolicy.NONE
    scope: TopologyScope = TopologyScope.CONTAINER
    nodes: tuple[int, ...] = (0,)
    """The NUMA nodes of the machine."""
    distances: Mapping[int, Mapping[int, int]] | None = None
    """Of each node to each, if close nodes are preferred (`prefer-closest-numa-nodes`)."""

    @property
    def every_node(self) -> NumaMask:
        return mask_of(self.nodes)

    @property
    def guarantees_alignment(self) -> bool:
        return self.policy is TopologyPolicy.SINGLE_NUMA_NODE
