"""One gRPC channel to a driver's Unix socket; whatever fails on it becomes a CsiError.

Neither requests nor answers are logged, nor part of an error: they hold secrets and tokens.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from urllib.parse import quote

import grpc
from grpc import aio
from msgspec import Struct

from klet.aio.clock import Clock
from klet.csi.errors import CsiCallFailed
from klet.metrics import Histogram
from klet.model.verbosity import REQUESTS
from klet.wire.codes import Code
from klet.wire.methods import Method, RequestT, ResponseT, answer_reader

logger = logging.getLogger(__name__)

MAX_SENT_BYTES: Final = 16 * 1024 * 1024
MAX_RECEIVED_BYTES: Final = 4 * 1024 * 1024
"""gRPC's own default, which upstream leaves as it is."""

_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.max_send_message_length", MAX_SENT_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a driver that restarted is not kept waiting by an older back-off
)
_TIMED_OUT: Final = "context deadline exceeded"
_TIMED_OUT_HERE: Final = frozenset({"Deadline Exceeded", "Stream removed (Deadline Exceeded)"})
"""What this gRPC says of its own deadline."""


class DriverAddress(Struct, frozen=True, kw_only=True):
    """Where a driver answers, and as what its calls are counted."""

    driver: str
    endpoint: str
    is_migrated: bool = False
    """It serves a volume of a kind that was once inside the kubelet."""


@asynccontextmanager
async def open_connection(
    address: DriverAddress, *, budget: timedelta, durations: Histogram, clock: Clock
) -> AsyncIterator["CsiConnection"]:
    """Yield a connection for one operation: all of its calls together have that much time."""
    async with aio.insecure_channel(_target(address.endpoint), options=_OPTIONS) as channel:
        yield CsiConnection(
            channel=channel, address=address, deadline=clock.monotonic() + budget.total_seconds(),
            durations=durations, clock=clock,
        )  # fmt: skip


class CsiConnection:
    """Calls on one channel, until its deadline. No call is repeated."""

    def __init__(
        self, *, channel: aio.Channel, address: DriverAddress, deadline: float, durations: Histogram, clock: Clock
    ) -> None:
        self._channel = channel
        self._address = address
        self._deadline = deadline
        self._durations = durations
        self._clock = clock

    async def call(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        began, code = self._clock.monotonic(), Code.CANCELLED
        try:
            answer = await self._call(method, request, timeout=self._deadline - began)
            code = Code.OK
        except CsiCallFailed as error:
            code = error.code
            raise
        else:
            return answer
        finally:
            took = self._clock.monotonic() - began
            migrated = "true" if self._address.is_migrated else "false"
            self._durations.observe(took, self._address.driver, method.path, code.value, migrated)
            extra = {"driver": self._address.driver, "method": method.path, "status": code.value, "duration": took}
            logger.log(REQUESTS, "CSI call", extra=extra)

    async def _call(self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: float) -> ResponseT:
        if timeout <= 0:
            raise CsiCallFailed(Code.DEADLINE_EXCEEDED, _TIMED_OUT)
        send = self._channel.unary_unary(method.path, method.request.SerializeToString, answer_reader(method.response))
        try:
            answer: ResponseT | None = await send(request, timeout=timeout)
        except aio.AioRpcError as error:
            raise _translate(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise CsiCallFailed(Code.CANCELLED, "the connection was closed") from None
        if answer is None:
            raise CsiCallFailed(Code.INTERNAL, f"grpc: failed to unmarshal the received message of {method.path}")
        return answer


def _target(endpoint: str) -> str:
    """Return an endpoint as gRPC spells it; a bare path means a Unix socket."""
    # gRPC decodes percent signs in an address.
    return f"unix:{quote(endpoint.removeprefix('unix://').removeprefix('unix:'))}"


def _translate(error: aio.AioRpcError) -> CsiCallFailed:
    code: grpc.StatusCode = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and error.details() in _TIMED_OUT_HERE:
        return CsiCallFailed(Code.DEADLINE_EXCEEDED, _TIMED_OUT)  # the words of Go's gRPC
    return CsiCallFailed(Code[code.name], error.details() or "")
