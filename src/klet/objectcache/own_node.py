"""The Node of this agent: as the watch shows it, and as the API server has it at this moment."""

from klet.aio.broadcast import Subscription
from klet.api.node import Node
from klet.kube.informer import Informer, ObjectKey
from klet.objectcache.store import ObjectClient


class OwnNode:
    """Reads one Node."""

    def __init__(self, *, informer: Informer[Node], client: ObjectClient, name: str) -> None:
        self._informer = informer
        self._client = client
        self._name = name

    def changes(self) -> Subscription[ObjectKey]:
        return self._informer.changes()

    async def read(self) -> Node:
        return await self._client.get(Node, self._name)
