"""A plugin's registrar on a real Unix socket, as node-driver-registrar is one. It behaves badly if a test wants it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import grpc
from grpc import aio

from klet.host.plugin_sockets import GET_INFO, NOTIFY, REGISTRATION
from klet.model.plugins import PluginInfo, PluginType
from klet.wire import pluginregistration_v1_pb2 as pb

FLOOD: int = 1 << 20
"""Bytes of an answer that nobody should read."""

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class RegistrarFault(StrEnum):
    """What a registrar does wrong."""

    SILENT = "silent"
    """It answers `GetInfo` when it is released, which may be never."""
    BREAKS_OFF = "breaks off"
    """It ends the call without an answer, as one does whose process ends."""
    FLOODS = "floods"
    """Its answer is much too long."""
    GARBLED = "garbled"
    """Its answer is no message."""
    DEAF = "deaf"
    """It takes a notification and never answers."""


class FakeRegistrar:
    """Says what a test wants, and keeps what it is notified of."""

    def __init__(self, *, socket: Path, info: PluginInfo) -> None:
        self.socket = socket
        self.info = info
        self.fault: RegistrarFault | None = None
        self.asked = 0
        self.notified: list[tuple[bool, str]] = []
        self._released = asyncio.Event()
        self._changed = asyncio.Event()
        self._server: aio.Server | None = None

    async def start(self) -> None:
        """Make the socket, again if there is one: that is another file."""
        await self.die()
        self.socket.unlink(missing_ok=True)
        self._released.clear()
        server = aio.server()
        server.add_generic_rpc_handlers((self._handler(),))
        server.add_insecure_port(f"unix:{quote(str(self.socket))}")
        await server.start()
        self._server = server

    async def die(self) -> None:
        """End as a process does that is killed: connections break, and the socket stays where it is."""
        if self._server is None:
            return
        server, self._server = self._server, None
        # gRPC removes the socket of a server that stops; the file that was there is put back.
        kept = self.socket.with_name(f".{self.socket.name}.kept")
        if self.socket.exists():
            kept.hardlink_to(self.socket)
        await server.stop(grace=None)
        if kept.exists():
            kept.unlink() if self.socket.exists() else kept.rename(self.socket)

    async def stop(self) -> None:
        """End in good order: the socket goes."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)
        self._released.set()
        self.socket.unlink(missing_ok=True)

    def release(self) -> None:
        """Answer what has waited."""
        self._released.set()

    async def until_notified(self, count: int = 1) -> tuple[bool, str]:
        """Return the newest notification once there were so many."""
        await self._until(lambda: len(self.notified) >= count)
        return self.notified[-1]

    async def until_asked(self, count: int = 1) -> None:
        await self._until(lambda: self.asked >= count)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def _handler(self) -> grpc.GenericRpcHandler:
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            GET_INFO.name: grpc.unary_unary_rpc_method_handler(self._get_info, pb.InfoRequest.FromString, bytes),
            NOTIFY.name: grpc.unary_unary_rpc_method_handler(self._notify, pb.RegistrationStatus.FromString, bytes),
        }
        return grpc.method_handlers_generic_handler(REGISTRATION.full_name, handlers)

    async def _get_info(self, _request: pb.InfoRequest, context: _Context) -> bytes:
        self.asked += 1
        self._changed.set()
        match self.fault:
            case RegistrarFault.SILENT:
                await self._released.wait()
            case RegistrarFault.BREAKS_OFF:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the process has ended")
            case RegistrarFault.FLOODS:
                return pb.PluginInfo(name="x" * FLOOD).SerializeToString()
            case RegistrarFault.GARBLED:
                return b"\xff\xff\xff"
            case _:
                pass
        return pb.PluginInfo(
            type=self.info.type,
            name=self.info.name,
            endpoint=self.info.endpoint,
            supported_versions=self.info.versions,
        ).SerializeToString()

    async def _notify(self, request: pb.RegistrationStatus, _context: _Context) -> bytes:
        self.notified.append((request.plugin_registered, request.error))
        self._changed.set()
        if self.fault is RegistrarFault.DEAF:
            await self._released.wait()
        return pb.RegistrationStatusResponse().SerializeToString()


@asynccontextmanager
async def serve_registrar(
    socket: Path,
    *,
    name: str = "driver.example.com",
    type: str = PluginType.CSI,  # noqa: A002 - the word of the protocol
    endpoint: str = "",
    versions: Sequence[str] = ("1.0.0",),
    fault: RegistrarFault | None = None,
) -> AsyncIterator[FakeRegistrar]:
    """Serve as long as the context lasts."""
    info = PluginInfo(type=type, name=name, endpoint=endpoint, versions=tuple(versions))
    registrar = FakeRegistrar(socket=socket, info=info)
    registrar.fault = fault
    await registrar.start()
    try:
        yield registrar
    finally:
        await registrar.stop()
