"""Keeps one mirror pod in the API for each static pod: creates, replaces and deletes it as the static pod changes.

Deleting a mirror stops nothing: it is created again.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from klet.aio.backoff import Backoff
from klet.aio.broadcast import Lagged
from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node
from klet.api.pod import Pod, PodStatus
from klet.api.pod_annotations import HASH_ANNOTATION, MIRROR_ANNOTATION
from klet.errors import level_for
from klet.model.pods import full_name, is_static
from klet.pods.mirror_api import ApiMirrors, MirrorError
from klet.pods.store import PodStore

logger = logging.getLogger(__name__)

LOOK_AGAIN: Final = timedelta(seconds=60)
LOOK_AT_ENDING: Final = timedelta(milliseconds=250)
"""How often a static pod that is being stopped is checked: its mirror is deleted when it has stopped."""
LEAVING: Final = timedelta(seconds=1)
"""How long a mirror that a client deletes is not created again: kubectl waits for its end by name, and would wait on
if the name were there again at once.
"""
_FIRST_DELAY: Final = timedelta(milliseconds=200)
_LONGEST_DELAY: Final = timedelta(seconds=10)


class MirrorKeeper:
    """Keeps one mirror for each static pod."""

    def __init__(self, *, pods: PodStore, api: ApiMirrors, is_ending: Callable[[str], bool], clock: Clock) -> None:
        self._pods = pods
        self._api = api
        self._is_ending = is_ending
        """Whether a static pod of this full name is still being stopped."""
        self._clock = clock
        self._queue = WorkQueue[str](clock=clock)
        self._leaving: dict[str, str] = {}
        """UIDs of mirrors that a client deletes, by full name."""
        self._backoff = Backoff[str](first=_FIRST_DELAY, longest=_LONGEST_DELAY)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="mirror-changes")
            group.create_task(self._look_again(), name="mirror-sweep")
            group.create_task(self._work(), name="mirror-writer")

    def look_at_all(self) -> None:
        """Check all of them, because something that concerns all has changed, such as the Node object."""
        for pod in (*self._pods.all(), *self._pods.mirrors()):
            self._queue.add(full_name(pod))

    async def _follow(self) -> None:
        with self._pods.changes() as changes:
            self.look_at_all()
            async for name in changes:
                if isinstance(name, Lagged):
                    self.look_at_all()
                else:
                    self._queue.add(name)

    async def _look_again(self) -> None:
        while True:
            await self._clock.sleep(LOOK_AGAIN)
            self.look_at_all()

    async def _work(self) -> None:
        while True:
            name = await self._queue.get()
            try:
                await self._keep(name)
                self._backoff.reset(name)
            except MirrorError as error:
                logger.log(level_for(error), "Mirror pod not kept", extra={"pod": name, "error": str(error)})
                self._queue.add_after(name, self._backoff.next(name, now=self._clock.now()))
            finally:
                self._queue.done(name)

    async def _keep(self, name: str) -> None:
        static = self._pods.static_of(name)
        mirror = next((each for each in self._pods.mirrors() if full_name(each) == name), None)
        if static is None:
            self._leaving.pop(name, None)
            if mirror is not None and self._is_ending(name):
                self._queue.add_after(name, LOOK_AT_ENDING)
            elif mirror is not None:
                await self._api.delete(mirror)
            return
        if mirror is not None:
            if is_mirror_of(mirror, static):
                return
            if mirror.metadata.deletion_timestamp is not None and self._leaving.get(name) != mirror.metadata.uid:
                self._leaving[name] = mirror.metadata.uid
                self._queue.add_after(name, LEAVING)
                return
            logger.info("Mirror pod is out of date", extra={"pod": name})
            if not await self._api.delete(mirror):
                return  # the watch will show what is there now
        node = self._api.node()
        if node is None or node.metadata.deletion_timestamp is not None:
            raise MirrorError("the node itself is not in the API yet, or is being deleted")
        self._leaving.pop(name, None)
        await self._api.create(make_mirror(static, node))


def is_mirror_of(mirror: Pod, static: Pod) -> bool:
    """Return whether a mirror shows the static pod as it is now."""
    wanted = static.metadata.annotations.get(HASH_ANNOTATION, "")
    return mirror.metadata.deletion_timestamp is None and mirror.metadata.annotations.get(MIRROR_ANNOTATION) == wanted


def make_mirror(static: Pod, node: Node) -> Pod:
    """Return the mirror of a static pod; the Node owns it."""
    assert is_static(static)
    if not node.metadata.uid:
        raise MirrorError(f"UID unset for node {node.metadata.name}")
    owner = OwnerReference(
        api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid, controller=True
    )
    found = static.metadata
    annotations = {**found.annotations, MIRROR_ANNOTATION: found.annotations.get(HASH_ANNOTATION, "")}
    metadata = ObjectMeta(
        name=found.name,
        namespace=found.namespace,
        uid=found.uid,
        labels=found.labels,
        annotations=annotations,
        owner_references=(owner,),
    )
    return replace(static, metadata=metadata, status=PodStatus())
