"""Which registration sockets there are, and which plugins are registered (upstream: desired and actual state of the
world).
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NewType, Protocol

from msgspec import Struct

from klet.aio.broadcast import Broadcast, Subscription
from klet.model.plugins import PluginInfo

SocketIdentity = NewType("SocketIdentity", int)
"""Which of the sockets that had this path one after the other (upstream: a UUID)."""


class PluginHandler(Protocol):
    """The part of the node that plugins of one type are for."""

    def find_problem(self, plugin: PluginInfo) -> str | None:
        """Return what keeps a plugin from being registered (upstream: `ValidatePlugin`)."""
        ...

    async def register(self, plugin: PluginInfo) -> None:
        """Begin to use a plugin; raises KletError. If it is cancelled, `deregister` follows."""
        ...

    async def deregister(self, plugin: PluginInfo) -> None:
        """Use it no more; raises KletError. It may not have been registered completely, or at all."""
        ...


class DesiredPlugin(Struct, frozen=True, kw_only=True):
    """A registration socket."""

    socket: str
    identity: SocketIdentity
    since: datetime


class RegisteredPlugin(Struct, frozen=True, kw_only=True):
    """A plugin that its handler has been given."""

    socket: str
    identity: SocketIdentity
    info: PluginInfo
    handler: PluginHandler


class DesiredPlugins:
    """The sockets in the registry directory. Written by the watcher only."""

    def __init__(self) -> None:
        self._plugins: dict[str, DesiredPlugin] = {}
        self._made = 0
        self._changes = Broadcast[str]()

    def add(self, socket: str, *, now: datetime) -> None:
        """Note a socket. One of a known path has been made again: another plugin may answer there."""
        self._made += 1
        self._plugins[socket] = DesiredPlugin(socket=socket, identity=SocketIdentity(self._made), since=now)
        self._changes.send(socket)

    def remove(self, path: str) -> None:
        """Forget a socket; any path may be given."""
        if self._plugins.pop(path, None) is not None:
            self._changes.send(path)

    def all(self) -> Mapping[str, DesiredPlugin]:
        return MappingProxyType(self._plugins)

    def changes(self) -> Subscription[str]:
        return self._changes.subscribe()


class RegisteredPlugins:
    """The registered plugins by their sockets. Written by the operations only."""

    def __init__(self) -> None:
        self._plugins: dict[str, RegisteredPlugin] = {}

    def put(self, plugin: RegisteredPlugin) -> None:
        self._plugins[plugin.socket] = plugin

    def remove(self, socket: str) -> None:
        self._plugins.pop(socket, None)

    def all(self) -> Mapping[str, RegisteredPlugin]:
        return MappingProxyType(self._plugins)
