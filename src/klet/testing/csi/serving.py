"""Serves the test driver and its registration on Unix sockets."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from grpc import aio
from msgspec import Struct

from klet.csi.client import NodeCapability
from klet.testing.csi.backing import VolumeBacking
from klet.testing.csi.driver import NAME, CsiTestDriver
from klet.testing.csi.memory import DriverMemory
from klet.wire import pluginregistration_v1_pb2 as registration
from klet.wire.methods import service_handler

REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]


class Registered(Struct):
    """What the agent has notified of the driver's registration, newest last."""

    answers: list[tuple[bool, str]]


class DriverServer:
    """One life of the driver after the other on the same socket; what it has done stays."""

    def __init__(
        self,
        *,
        backing: VolumeBacking,
        memory: DriverMemory,
        socket: Path,
        name: str = NAME,
        on_death: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.driver = CsiTestDriver(backing=backing, memory=memory, on_death=on_death or self.die, name=name)
        self.socket = socket
        self.registered = Registered([])
        self._server: aio.Server | None = None

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        server = aio.server()
        server.add_generic_rpc_handlers((*self.driver.handlers(), self._registration()))
        server.add_insecure_port(f"unix:{quote(str(self.socket))}")
        await server.start()
        self._server = server

    async def register(self, directory: Path, name: str = "d.sock") -> Path:
        """Make the socket by which the agent finds the driver: the driver's own, linked to by a short name."""
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(self.socket)
        return link

    async def die(self) -> None:
        """Close all connections without an answer."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)
            self.socket.unlink(missing_ok=True)

    async def stop(self) -> None:
        self.driver.faults.clear()
        await self.die()

    def _registration(self) -> grpc.GenericRpcHandler:
        async def get_info(_request: registration.InfoRequest, _context: Any) -> registration.PluginInfo:
            return registration.PluginInfo(
                type="CSIPlugin", name=self.driver.name, endpoint=str(self.socket), supported_versions=["1.0.0"]
            )

        async def notify(
            status: registration.RegistrationStatus, _context: Any
        ) -> registration.RegistrationStatusResponse:
            self.registered.answers.append((status.plugin_registered, status.error))
            return registration.RegistrationStatusResponse()

        return service_handler(REGISTRATION, {"GetInfo": get_info, "NotifyRegistrationStatus": notify})


@asynccontextmanager
async def serve_driver(
    *,
    backing: VolumeBacking,
    socket: Path,
    name: str = NAME,
    capabilities: frozenset[NodeCapability] = frozenset({NodeCapability.STAGE_UNSTAGE_VOLUME}),
) -> AsyncIterator[DriverServer]:
    """Serve as long as the context lasts."""
    server = DriverServer(backing=backing, memory=DriverMemory(), socket=socket, name=name)
    server.driver.capabilities = capabilities
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
