"""The registration service of plugins on their Unix sockets. What a plugin answers is bounded in size and in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from urllib.parse import quote

import grpc
from grpc import aio

from klet.aio.clock import Clock
from klet.host.errors import HostError
from klet.model.foreign_text import LONGEST_OUTPUT, shorten
from klet.model.plugins import PluginInfo
from klet.wire import pluginregistration_v1_pb2 as pb
from klet.wire.codes import Code
from klet.wire.methods import Method, RequestT, ResponseT, answer_reader, method_of

REGISTRATION: Final = pb.DESCRIPTOR.services_by_name["Registration"]
GET_INFO: Final = method_of(REGISTRATION, "GetInfo", pb.InfoRequest, pb.PluginInfo)
NOTIFY: Final = method_of(
    REGISTRATION, "NotifyRegistrationStatus", pb.RegistrationStatus, pb.RegistrationStatusResponse
)
DIAL: Final = timedelta(seconds=10)
INFO: Final = timedelta(seconds=1)
STATUS: Final = timedelta(seconds=5)
MAX_MESSAGE_BYTES: Final = 64 * 1024
LONGEST_SOCKET: Final = 107
"""Bytes of a socket's path that Linux can connect to."""
_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a socket that was made again does not wait for an older one
)


class PluginSocketError(HostError):
    """A plugin did not answer, or not as the protocol wants it. `str()` is what Go's gRPC would say."""


class RegistrationSockets:
    """Connects with plugins."""

    def __init__(self, *, clock: Clock, dial_timeout: timedelta = DIAL) -> None:
        self._clock = clock
        self._dial_timeout = dial_timeout

    @asynccontextmanager
    async def dial(self, socket: str) -> AsyncIterator["RegistrationClient"]:
        """Yield a connection once it is there; raises PluginSocketError."""
        if len(socket.encode(errors="surrogateescape")) > LONGEST_SOCKET:
            raise PluginSocketError(f"the path of a socket must have at most {LONGEST_SOCKET} bytes")
        # gRPC decodes percent signs in an address.
        async with aio.insecure_channel(f"unix:{quote(socket)}", options=_OPTIONS) as channel:
            await self._clock.wait(_until_ready(channel), at_most=self._dial_timeout)
            if channel.get_state() is not grpc.ChannelConnectivity.READY:
                raise PluginSocketError("context deadline exceeded")
            yield RegistrationClient(channel=channel)


class RegistrationClient:
    """The calls to one plugin."""

    def __init__(self, *, channel: aio.Channel) -> None:
        self._channel = channel

    async def get_info(self) -> PluginInfo:
        answer = await self._call(GET_INFO, pb.InfoRequest(), timeout=INFO)
        return PluginInfo(
            type=answer.type,
            name=answer.name,
            endpoint=answer.endpoint,
            versions=tuple(answer.supported_versions),
        )

    async def notify(self, *, error: str) -> None:
        status = pb.RegistrationStatus(plugin_registered=not error, error=shorten(error, LONGEST_OUTPUT))
        await self._call(NOTIFY, status, timeout=STATUS)

    async def _call(self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta) -> ResponseT:
        send = self._channel.unary_unary(method.path, method.request.SerializeToString, answer_reader(method.response))
        try:
            answer: ResponseT | None = await send(request, timeout=timeout.total_seconds())
        except aio.AioRpcError as error:
            raise _translate(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise PluginSocketError(_describe(Code.CANCELLED, "the connection was closed")) from None
        if answer is None:
            raise PluginSocketError(
                _describe(Code.INTERNAL, f"grpc: failed to unmarshal the received message of {method.path}")
            )
        return answer


async def _until_ready(channel: aio.Channel) -> None:
    await channel.channel_ready()


def _translate(error: aio.AioRpcError) -> PluginSocketError:
    code: grpc.StatusCode = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return PluginSocketError(_describe(Code.DEADLINE_EXCEEDED, "context deadline exceeded"))
    return PluginSocketError(_describe(Code[code.name], shorten(error.details() or "")))


def _describe(code: Code, message: str) -> str:
    return f"rpc error: code = {code} desc = {message}"
