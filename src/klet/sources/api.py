"""Pods that the API server has bound to this node.

Nothing is said before the first complete list: a node that cannot reach its API server must not take its pods for gone.
"""

from typing import Protocol

from klet.aio.broadcast import Subscription
from klet.api.pod import Pod
from klet.kube.informer import ObjectKey
from klet.sources.config import API, PodSink


class FollowedPods(Protocol):
    """The pods of this node, as the API server has them."""

    def all(self) -> tuple[Pod, ...]: ...

    async def until_synced(self) -> None: ...

    def changes(self) -> Subscription[ObjectKey]: ...


class FollowedNode(Protocol):
    """The object of this node."""

    async def until_synced(self) -> None: ...


class ApiSource:
    """Hands on what the API server says, each time it says something."""

    def __init__(self, *, node: FollowedNode, pods: FollowedPods, sink: PodSink) -> None:
        self._node = node
        self._pods = pods
        self._sink = sink

    async def run(self) -> None:
        # Admission looks at the node's labels, so pods are only taken in when those are known.
        await self._node.until_synced()
        with self._pods.changes() as changes:
            await self._pods.until_synced()
            while True:
                changes.drain()
                changes.lagged = False
                self._sink.set_pods(API, self._pods.all())
                await changes.get()
