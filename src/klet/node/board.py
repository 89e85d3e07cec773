"""The node's own object as the agent knows it, for parts that need its addresses, labels or volumes in use."""

import asyncio

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.node import Node, NodeAddress


class NodeBoard:
    """The node as it was last read or written. Written by its registration and its status sync only."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._addresses: tuple[NodeAddress, ...] = ()
        self._changes = Broadcast[Node]()
        self._known = asyncio.Event()

    @property
    def node(self) -> Node | None:
        return self._node

    @property
    def addresses(self) -> tuple[NodeAddress, ...]:
        """The last ones that were known, even if the object is gone."""
        return self._addresses

    def put(self, node: Node) -> None:
        if node != self._node:
            self._node = node
            self._addresses = node.status.addresses or self._addresses
            self._known.set()
            self._changes.send(node)

    def forget(self) -> None:
        """Drop the object, which does not exist any more."""
        self._node = None
        self._known.clear()

    async def until_known(self) -> None:
        await self._known.wait()

    def changes(self) -> Subscription[Node]:
        return self._changes.subscribe()


def newer_of(first: Node | None, second: Node | None) -> Node | None:
    """Return the one that the API server wrote later: a watch may lag behind the answer to our own write."""
    if first is None or second is None:
        return second if first is None else first
    return second if _version(second) > _version(first) else first


def _version(node: Node) -> int:
    text = node.metadata.resource_version
    return int(text) if text.isdecimal() else 0
