"""Notices drivers that come and go, and CSIDriver objects that change: then volumes of drivers are tried again."""

from typing import Any, Protocol

from klet.aio.broadcast import Subscription, until_any
from klet.volumes.csi.places import PLUGIN
from klet.volumes.plugins.base import PluginUser


class DriverNews(Protocol):
    """Reports which drivers are registered."""

    def changes(self) -> Subscription[str]: ...


class DriverObjectNews(Protocol):
    """Reports CSIDriver objects that have changed."""

    async def until_synced(self) -> None: ...

    def changes(self) -> Subscription[Any]: ...


class CsiChanges:
    """Has the volume manager ask the CSI plugin again at each change."""

    def __init__(self, *, drivers: DriverNews, objects: DriverObjectNews, user: PluginUser) -> None:
        self._drivers = drivers
        self._objects = objects
        self._user = user

    async def run(self) -> None:
        with self._drivers.changes() as drivers, self._objects.changes() as objects:
            await self._objects.until_synced()
            while True:
                drivers.drain()
                objects.drain()
                self._user.plugin_changed(PLUGIN)
                await until_any(drivers, objects)
