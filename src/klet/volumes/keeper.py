"""Brings changed config maps and secrets to the files of running pods, as soon as the change is known."""

from typing import Protocol

from klet.aio.broadcast import Subscription
from klet.model.objects import ObjectRef


class ChangedObjects(Protocol):
    """Tells of objects that have changed."""

    def changes(self) -> Subscription[ObjectRef]: ...


class Volumes(Protocol):
    """The part of the volume manager that brings volumes up to date."""

    def objects_changed(self, ref: ObjectRef) -> None: ...

    def refresh_all(self) -> None: ...


class VolumeKeeper:
    """Waits for no sync of a pod. Tokens, and what no watch tells of, are renewed by the manager when they are due."""

    def __init__(self, *, objects: ChangedObjects, volumes: Volumes) -> None:
        self._objects = objects
        self._volumes = volumes

    async def run(self) -> None:
        with self._objects.changes() as changes:
            async for ref in changes:
                self._volumes.objects_changed(ref)
                if changes.lagged:
                    changes.lagged = False
                    self._volumes.refresh_all()
