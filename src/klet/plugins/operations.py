"""Registers one plugin, or unregisters it (upstream: the operation generator of the plugin manager)."""

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec.structs import replace

from klet.errors import KletError
from klet.host.errors import HostError
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.plugins import PluginInfo
from klet.plugins.boards import DesiredPlugin, PluginHandler, RegisteredPlugin, RegisteredPlugins
from klet.plugins.errors import PluginError

logger = logging.getLogger(__name__)


class PluginRegistrar(Protocol):
    """The registration service of one plugin; raises HostError."""

    async def get_info(self) -> PluginInfo: ...

    async def notify(self, *, error: str) -> None:
        """Notify the plugin that it is registered, or why it is not."""
        ...


class PluginSockets(Protocol):
    """Connects with registration sockets; raises HostError."""

    def dial(self, socket: str) -> AbstractAsyncContextManager[PluginRegistrar]: ...


class PluginOperations:
    """Does what is to be done for a single socket. The caller sees to it that it is one thing at a time."""

    def __init__(
        self, *, sockets: PluginSockets, handlers: Mapping[str, PluginHandler], registered: RegisteredPlugins
    ) -> None:
        self._sockets = sockets
        self._handlers = handlers
        self._registered = registered

    async def register(self, plugin: DesiredPlugin) -> None:
        """Ask a plugin what it is, and give it to its handler; raises PluginError.

        It counts as registered from the moment that its handler gets it, even if the handler refuses: the registrar of
        the plugin is notified, and makes its socket again for the next try.
        """
        socket = plugin.socket
        try:
            async with self._sockets.dial(socket) as registrar:
                await self._register(plugin, registrar)
        except HostError as error:
            raise PluginError(f"RegisterPlugin error -- dial failed at socket {socket}, err: {error}") from error

    async def _register(self, plugin: DesiredPlugin, registrar: PluginRegistrar) -> None:
        socket = plugin.socket
        try:
            info = await registrar.get_info()
        except HostError as error:
            raise PluginError(
                f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {socket}, err: {error}"
            ) from error
        handler = self._handlers.get(info.type)
        if handler is None:
            kind = shorten(info.type, LONGEST_WORD)
            await _refuse(
                registrar,
                socket,
                f"RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}",
            )
            return
        info = info if info.endpoint else replace(info, endpoint=socket)
        if problem := handler.find_problem(info):
            await _refuse(registrar, socket, f"RegisterPlugin error -- plugin validation failed with err: {problem}")
            return
        self._registered.put(RegisteredPlugin(socket=socket, identity=plugin.identity, info=info, handler=handler))
        try:
            await handler.register(info)
        except KletError as error:
            why = f"RegisterPlugin error -- plugin registration failed with err: {error}"
            raise PluginError(await _notify_failure(registrar, why)) from error
        try:
            await registrar.notify(error="")
        except HostError as error:
            raise PluginError(
                f"RegisterPlugin error -- failed to send registration status at socket {socket}, err: {error}"
            ) from error
        logger.info("Plugin registered", extra={"plugin": info.name, "type": info.type, "path": socket})

    async def unregister(self, plugin: RegisteredPlugin) -> None:
        """Take a plugin from its handler; raises PluginError. The plugin itself is not asked."""
        self._registered.remove(plugin.socket)
        try:
            await plugin.handler.deregister(plugin.info)
        except KletError as error:
            raise PluginError(f"UnregisterPlugin error -- {error}") from error
        extra = {"plugin": plugin.info.name, "type": plugin.info.type, "path": plugin.socket}
        logger.info("Plugin unregistered", extra=extra)


async def _refuse(registrar: PluginRegistrar, socket: str, why: str) -> None:
    """Notify a plugin that it is refused, and raise."""
    failure = await _notify_failure(registrar, why)
    raise PluginError(f"RegisterPlugin error -- failed to send error at socket {socket}, err: {failure}")


async def _notify_failure(registrar: PluginRegistrar, why: str) -> str:
    """Notify a plugin of a failure; return the text of the failure, with why the plugin could not be notified."""
    try:
        await registrar.notify(error=why)
    except HostError as error:
        return f"{why}: {error}"
    return why
