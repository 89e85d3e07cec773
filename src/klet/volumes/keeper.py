"""Brings changed config maps, secrets and trust bundles to the files of running pods as soon as they are known."""

import asyncio
from collections.abc import Sequence

from klet.aio.broadcast import Lagged
from klet.model.roles import ObjectChanges
from klet.volumes.manager import VolumeManager


class VolumeKeeper:
    """Waits for no sync of a pod. Tokens, and what is not watched, are renewed by the manager when due."""

    def __init__(self, *, objects: Sequence[ObjectChanges], volumes: VolumeManager) -> None:
        self._objects = tuple(objects)
        self._volumes = volumes

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for objects in self._objects:
                group.create_task(self._follow(objects))

    async def _follow(self, objects: ObjectChanges) -> None:
        with objects.changes() as changes:
            async for ref in changes:
                if isinstance(ref, Lagged):
                    self._volumes.refresh_all()
                else:
                    self._volumes.objects_changed(ref)
