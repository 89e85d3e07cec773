"""Stands between the API server's pods and the agent: pods are on disk before the agent gets them.

A disk that fails or hangs is logged and delays pods only for a short time: they go on, and the write is retried.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.pod import Pod
from klet.checkpoint import CheckpointError
from klet.model.pods import uid_of
from klet.model.roles import PodSink
from klet.offline.plan import Urgency, choose_pods, compare_pods
from klet.offline.snapshot import AcceptedPods, SnapshotStore

logger = logging.getLogger(__name__)

PATIENCE: Final = timedelta(seconds=2)
"""How long pods wait for the disk."""
GATHER: Final = timedelta(seconds=5)
RETRY: Final = timedelta(seconds=10)


class PodKeeper:
    """Writes new pods to disk before it passes them on; a slow disk delays them by `PATIENCE` at most."""

    def __init__(
        self,
        *,
        store: SnapshotStore[AcceptedPods],
        sink: PodSink,
        node_name: str,
        on_kept: Callable[[tuple[Pod, ...]], Awaitable[None]],
        kept: Iterable[Pod],
        clock: Clock,
    ) -> None:
        self._store = store
        self._sink = sink
        self._node_name = node_name
        self._on_kept = on_kept
        """Notified of what is on disk now, so that what no pod needs can be removed."""
        self._kept = {uid_of(pod): pod for pod in kept}
        self._clock = clock
        self._news: tuple[str, tuple[Pod, ...]] | None = None
        self._arrived = asyncio.Event()
        self._wanted: tuple[Pod, ...] = ()
        self._soon = asyncio.Event()
        self._now = asyncio.Event()
        self._settled = asyncio.Event()

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
        self._news = (source, pods)
        self._arrived.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hand_on(), name="hand-on-pods")
            group.create_task(self._write(), name="keep-pods")

    async def _hand_on(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            assert self._news is not None  # it arrived
            source, pods = self._news
            chosen = choose_pods(pods)
            match compare_pods(self._kept, chosen):
                case Urgency.BEFORE_ACTING:
                    self._wanted = chosen
                    self._settled.clear()
                    self._soon.set()
                    self._now.set()
                    await first_of(self._settled.wait(), self._clock.sleep(PATIENCE))
                case Urgency.SOON:
                    self._wanted = chosen
                    self._soon.set()
                case Urgency.NEVER:
                    pass
            self._sink.set_pods(source, pods)

    async def _write(self) -> None:
        while True:
            await self._soon.wait()
            if not self._now.is_set():
                await first_of(self._now.wait(), self._clock.sleep(GATHER))
            self._soon.clear()
            self._now.clear()
            pods = self._wanted
            accepted = AcceptedPods(node_name=self._node_name, at=self._clock.now(), pods=pods)
            try:
                await self._store.save(accepted)
            except CheckpointError as error:
                logger.warning("Without the API server a restart would not know its pods", extra={"error": str(error)})
                self._soon.set()
                self._settled.set()
                await first_of(self._now.wait(), self._clock.sleep(RETRY))
                continue
            self._kept = {uid_of(pod): pod for pod in pods}
            if not self._now.is_set():
                self._settled.set()
            await self._on_kept(pods)
