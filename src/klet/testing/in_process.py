"""The fake runtime behind klet's own CRI port, in the same process and event loop: for simulations.

No socket and no thread: on a VirtualLoop with one seed, a run repeats exactly. Deadlines are those of the real client.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message

from klet.aio.clock import Clock
from klet.cri.client import CriClient
from klet.cri.connection import CriTransport
from klet.cri.counted import CountedTransport
from klet.cri.errors import Code, error_for
from klet.cri.metrics import RuntimeCallMetrics
from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.events import parse_filters
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.fake_runtime.pump import Pump, pumping
from klet.wire.methods import Method, RequestT, ResponseT

REQUEST_TIMEOUT = timedelta(minutes=2)


class InProcessTransport:
    """Stands in for a gRPC connection: CriClient and ContainerdEvents work on it unchanged."""

    def __init__(self, *, runtime: FakeRuntime, pump: Pump) -> None:
        self._runtime = runtime
        self._pump = pump

    @property
    def endpoint(self) -> str:
        return "in-process"

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        try:
            answer = await self._pump.call(method.name, request, timeout=timeout)
        except TimeoutError:
            raise error_for(Code.DEADLINE_EXCEEDED, "context deadline exceeded") from None
        except RpcFailure as failure:
            raise error_for(failure.code, failure.message) from failure
        return answer if isinstance(answer, method.response) else _as(method.response, answer)

    async def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        """Subscribe gives containerd's envelopes, GetContainerEvents the CRI's events."""
        is_cri = method.name == "GetContainerEvents"
        if is_cri and not self._runtime.features.container_events:
            raise error_for(Code.UNIMPLEMENTED, f"unknown method {method.name} for service runtime.v1.RuntimeService")
        wanted = parse_filters(getattr(request, "filters", ()))
        try:
            async with aclosing(self._pump.events(wanted)) as events:
                async for event in events:
                    answer: Message | None = self._runtime.cri_event(event) if is_cri else event.envelope()
                    if answer is not None:
                        yield _as(method.response, answer)
        except RpcFailure as failure:
            raise error_for(failure.code, failure.message) from failure


@asynccontextmanager
async def run_in_process(
    runtime: FakeRuntime,
    *,
    clock: Clock,
    timeout: timedelta = REQUEST_TIMEOUT,
    metrics: RuntimeCallMetrics | None = None,
) -> AsyncIterator[CriClient]:
    """Yield a client of the fake runtime, whose containers run as long as the context lasts."""
    async with pumping(runtime, clock) as pump:
        transport: CriTransport = InProcessTransport(runtime=runtime, pump=pump)
        if metrics is not None:
            transport = CountedTransport(inner=transport, metrics=metrics, clock=clock)
        yield CriClient(runtime=transport, images=transport, timeout=timeout)


def _as(kind: type[ResponseT], answer: Any) -> ResponseT:
    if not isinstance(answer, kind):
        message = f"the fake runtime answered {type(answer).__name__} instead of {kind.__name__}"
        raise TypeError(message)
    return answer
