"""The Node as the agent knows it (GetCachedNode): the API server's, or the initial node where there is none yet."""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from klet.api.node import Node
from klet.api.selectors import parse_int64


class NodeFetcher(Protocol):
    """Asks the API server for the Node of this agent."""

    async def read(self) -> Node:
        """Return it as it is now; raises KletError."""
        ...


class CachedNode:
    """The Node that pods are checked against."""

    def __init__(self, *, find: Callable[[], Node | None], fetcher: NodeFetcher | None, initial: Node) -> None:
        self._find = find
        self._fetcher = fetcher
        """None without an API server."""
        self._initial = initial
        self._fetched: Node | None = None

    def known(self) -> Node | None:
        """Return the newest that was seen; None if nobody knows what the node has for pods."""
        seen = self._find()
        if self._fetched is not None and (seen is None or not _is_newer(seen, self._fetched)):
            return self._with_resources(self._fetched)
        self._fetched = None
        return self._with_resources(self._initial if seen is None else seen)

    async def fetch(self) -> Node:
        """Return it as it is now. Raises KletError if the API server does not answer."""
        if self._fetcher is None:
            return self._initial
        self._fetched = fetched = await self._fetcher.read()
        return self._with_resources(fetched) or fetched

    def _with_resources(self, node: Node) -> Node | None:
        """Return the Node with what it will have, if its status has not been written yet."""
        if node.status.allocatable:
            return node
        expected = self._initial.status.allocatable
        return replace(node, status=replace(node.status, allocatable=expected)) if expected else None


def _is_newer(one: Node, other: Node) -> bool:
    """Return whether a Node was written after another one; if that cannot be known, it was."""
    first, second = (parse_int64(each.metadata.resource_version) for each in (one, other))
    return first is None or second is None or first > second
