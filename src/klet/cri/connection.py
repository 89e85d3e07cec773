"""One gRPC channel to a runtime's Unix socket; whatever fails on it becomes a CriError."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol

import grpc
from grpc import aio

from klet.cri.errors import Code, CriError, error_for
from klet.cri.traced import build_interceptors
from klet.model.tracing import Tracer
from klet.model.verbosity import REQUEST_STARTS, REQUESTS
from klet.wire.methods import Method, RequestT, ResponseT, answer_reader

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.min_reconnect_backoff_ms", 5000),  # despite its name the time that one connection attempt may take
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # two connections to one socket do not share their backoff
)


class CriTransport(Protocol):
    """What clients call through: a connection, or a replacement for one."""

    @property
    def endpoint(self) -> str: ...

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT: ...

    def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]: ...


@asynccontextmanager
async def open_connection(
    endpoint: str, *, metadata: tuple[tuple[str, str], ...] = (), tracer: Tracer | None = None
) -> AsyncIterator["CriConnection"]:
    """Yield a connection that is opened at the first call and again whenever it was lost."""
    interceptors = build_interceptors(tracer) if tracer is not None else None
    async with aio.insecure_channel(_target(endpoint), options=_OPTIONS, interceptors=interceptors) as channel:
        yield CriConnection(channel=channel, endpoint=endpoint, metadata=metadata)


class CriConnection:
    """Calls on one channel, each with the same metadata."""

    def __init__(self, *, channel: aio.Channel, endpoint: str, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._channel = channel
        self._metadata = metadata
        self._calls: dict[str, Any] = {}
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        return self._endpoint

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        """Call once and wait for the answer; no call is repeated."""
        if not logger.isEnabledFor(REQUESTS):
            return await self._call(method, request, timeout=timeout)
        logger.log(REQUEST_STARTS, "CRI request", extra={"method": method.path})
        began, code = asyncio.get_running_loop().time(), Code.CANCELLED
        try:
            answer = await self._call(method, request, timeout=timeout)
            code = Code.OK
        except CriError as error:
            code = error.code
            raise
        else:
            return answer
        finally:
            # Neither requests nor answers are logged: they hold environments, and logins of registries.
            milliseconds = round((asyncio.get_running_loop().time() - began) * 1000)
            extra = {"method": method.path, "status": code.value, "milliseconds": milliseconds}
            logger.log(REQUESTS, "CRI response", extra=extra)

    async def _call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        send = self._calls.get(method.path)
        if send is None:
            send = self._calls[method.path] = self._channel.unary_unary(
                method.path, method.request.SerializeToString, answer_reader(method.response)
            )
        try:
            answer: ResponseT | None = await send(
                request,
                timeout=timeout.total_seconds() if timeout is not None else None,
                metadata=self._metadata or None,
            )
        except aio.AioRpcError as error:
            raise _translate(error) from error
        except asyncio.CancelledError:
            if _was_cancelled():
                raise
            raise _closed(self.endpoint) from None
        if answer is None:
            raise _unreadable(method)
        return answer

    async def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        """Call once and yield the answers as they come, without a deadline."""
        read = answer_reader(method.response)
        call = self._channel.unary_stream(method.path, method.request.SerializeToString, read)(
            request, metadata=self._metadata or None
        )
        try:
            async for answer in call:
                if answer is None:
                    raise _unreadable(method)
                yield answer
        except aio.AioRpcError as error:
            raise _translate(error) from error
        except asyncio.CancelledError:
            if _was_cancelled():
                raise
            raise _closed(self.endpoint) from None
        finally:
            call.cancel()


def _target(endpoint: str) -> str:
    """Return an endpoint as gRPC spells it; a bare path means a Unix socket."""
    return f"unix:{endpoint.removeprefix('unix://').removeprefix('unix:')}"


def _translate(error: aio.AioRpcError) -> CriError:
    code: grpc.StatusCode = error.code()
    return error_for(Code[code.name], error.details() or "")


def _unreadable(method: Method[RequestT, ResponseT]) -> CriError:
    """Return the error in the words of Go's gRPC."""
    return error_for(Code.INTERNAL, f"grpc: failed to unmarshal the received message of {method.path}")


def _was_cancelled() -> bool:
    """Return whether the running task was cancelled; grpc raises the same error when a channel closes during a call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _closed(endpoint: str) -> CriError:
    return error_for(Code.UNAVAILABLE, f"the connection to {endpoint} was closed")
