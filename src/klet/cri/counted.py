"""Counts the calls of the CRI; those of other services on the same connection pass as they are."""

from collections.abc import AsyncGenerator
from datetime import timedelta

from klet.aio.clock import Clock
from klet.cri.connection import CriTransport
from klet.cri.errors import CriError
from klet.cri.metrics import OPERATIONS, RuntimeCallMetrics
from klet.wire.methods import Method, RequestT, ResponseT


class CountedTransport:
    """A transport whose calls are counted."""

    def __init__(self, *, inner: CriTransport, metrics: RuntimeCallMetrics, clock: Clock) -> None:
        self._inner = inner
        self._metrics = metrics
        self._clock = clock

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        operation = OPERATIONS.get(method.path)
        if operation is None:
            return await self._inner.call(method, request, timeout=timeout)
        began = self._clock.monotonic()
        try:
            return await self._inner.call(method, request, timeout=timeout)
        except CriError:
            self._metrics.errors.add(operation)
            raise
        finally:
            self._end(operation, began)

    async def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        """Yield the answers. A stream is counted when it ends, as upstream."""
        operation = OPERATIONS.get(method.path)
        began = self._clock.monotonic()
        answers = self._inner.stream(method, request)
        try:
            async for answer in answers:
                yield answer
        except CriError:
            if operation is not None:
                self._metrics.errors.add(operation)
            raise
        finally:
            await answers.aclose()
            if operation is not None:
                self._end(operation, began)

    def _end(self, operation: str, began: float) -> None:
        self._metrics.total.add(operation)
        self._metrics.duration.observe(self._clock.monotonic() - began, operation)
