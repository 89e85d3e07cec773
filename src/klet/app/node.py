"""From a specification to a node: the one function behind `klet run`, the simulation and the component tests.

A specification holds the ports, opened already: real on a machine, fake in a simulation. Building starts
nothing: the parts of a node run when `run_parts` runs them.
"""

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from klet.api.node import Node
from klet.app.kubelet_api import OpenedApi, build_api_parts
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.app.wiring import Agent, build_agent
from klet.model.roles import Part, Publisher

if TYPE_CHECKING:
    from klet.app.cluster.join import Cluster


class NodeSpecification(Struct, frozen=True, kw_only=True):
    """The settings of a node, and the ports that it uses."""

    settings: AgentSettings
    ports: Ports
    cluster: "Cluster | None" = None
    """The API server; None on a node without one."""
    api: OpenedApi | None = None
    """Where the kubelet API is served; None if it is not."""
    others: tuple[Part, ...] = ()
    """Parts that need nothing of the agent, such as the pod sources; they are started first."""


class WiredNode(Struct, frozen=True, kw_only=True):
    """A wired node."""

    agent: Agent
    parts: tuple[Part, ...]
    """In the order of their start."""
    publishers: tuple[Publisher, ...] = ()
    """Those of the parts that have something to send before the agent ends."""


def build_node(spec: NodeSpecification) -> WiredNode:
    """Wire every part of a node."""
    agent = build_agent(spec.ports, spec.settings)
    parts = (*spec.others, *agent.parts)
    publishers: tuple[Publisher, ...] = ()
    if spec.cluster is not None:
        # Imported here: the API client takes memory that a node without an API server can save.
        from klet.app.cluster.join import build_cluster_parts  # noqa: PLC0415 - see above

        joined = build_cluster_parts(spec.cluster, spec.ports, agent)
        parts += joined.parts
        publishers = joined.publishers
    if spec.api is not None:
        find = partial(_find_node, spec.cluster, spec.settings.node_name)
        parts += build_api_parts(spec.api, spec.ports, agent, node_name=spec.settings.node_name, find_node=find)
    return WiredNode(agent=agent, parts=parts, publishers=publishers)


def _find_node(cluster: "Cluster | None", name: str) -> Node | None:
    """Return the node as the API server has it."""
    return cluster.informers.node.get(name) if cluster is not None else None
