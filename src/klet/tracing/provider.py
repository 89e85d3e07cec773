"""Sends spans to an OTLP collector over gRPC (KubeletTracing), as upstream's component-base/tracing does.

Spans are sent in batches by a thread of the SDK. A collector that does not answer costs spans, never time of a pod.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from klet.model.tracing import SpanAttributes, SpanKind

logger = logging.getLogger(__name__)

SERVICE: Final = "kubelet"
DEFAULT_ENDPOINT: Final = "localhost:4317"
FLUSH_TIME: Final = timedelta(seconds=2)
"""How long the last spans are sent when the agent ends."""
_MILLION: Final = 1_000_000
_NOTHING: Final[SpanAttributes] = {}
_KINDS: Final = {
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
    SpanKind.SERVER: trace.SpanKind.SERVER,
}


class OtelSpan:
    """A span of the SDK."""

    def __init__(self, *, span: trace.Span, propagator: CompositePropagator) -> None:
        self._span = span
        self._propagator = propagator

    def set(self, attributes: SpanAttributes) -> None:
        self._span.set_attributes(attributes)

    def add_event(self, name: str, attributes: SpanAttributes) -> None:
        self._span.add_event(name, attributes)

    def fail(self, message: str) -> None:
        self._span.set_status(trace.StatusCode.ERROR, message)

    def record_error(self, error: BaseException) -> None:
        # As Go's SDK does it: type and message. A stack would be klet's own, and is in the log if it is a bug.
        attributes = {"exception.type": type(error).__name__, "exception.message": str(error)}
        self._span.add_event("exception", attributes)
        self.fail(str(error))

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=trace.set_span_in_context(self._span))
        return carrier

    def end(self) -> None:
        self._span.end()


class OtelTracer:
    """Makes spans of the SDK."""

    def __init__(self, *, exporter: SpanExporter, sampler: Sampler, host_name: str) -> None:
        # These two alone, as upstream's: nothing is detected, and nothing of the environment is sent.
        resource = Resource({"service.name": SERVICE, "host.name": host_name})
        self._exporter = exporter
        # The agent ends it itself; at the exit of the interpreter it would wait for a dead collector.
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._propagator = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
        self._tracers: dict[str, trace.Tracer] = {}

    @contextmanager
    def span(
        self,
        name: str,
        *,
        scope: str,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: SpanAttributes = _NOTHING,
        is_root: bool = False,
    ) -> Iterator[OtelSpan]:
        context = Context() if is_root else None
        span = self._tracer(scope).start_span(name, context=context, kind=_KINDS[kind], attributes=attributes)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            made = OtelSpan(span=span, propagator=self._propagator)
            try:
                yield made
            except Exception as error:
                made.record_error(error)
                raise

    def start(self, name: str, *, scope: str, kind: SpanKind, attributes: SpanAttributes) -> OtelSpan:
        span = self._tracer(scope).start_span(name, kind=_KINDS[kind], attributes=attributes)
        return OtelSpan(span=span, propagator=self._propagator)

    def close(self) -> None:
        """Send what is left, for a moment. Blocks: for a thread."""
        # The SDK itself would try for ten seconds; an exporter that is shut down gives up.
        last_moment = threading.Timer(FLUSH_TIME.total_seconds(), self._exporter.shutdown)
        last_moment.start()
        self._provider.shutdown()
        last_moment.cancel()
        last_moment.join()

    def _tracer(self, scope: str) -> trace.Tracer:
        found = self._tracers.get(scope)
        if found is None:
            found = self._tracers[scope] = self._provider.get_tracer(scope)
        return found


def build_tracer(*, endpoint: str | None, rate_per_million: int | None, host_name: str) -> OtelTracer:
    """Return the tracer for the `tracing` of a KubeletConfiguration; no connection is made yet."""
    exporter = OTLPSpanExporter(endpoint=endpoint or DEFAULT_ENDPOINT, insecure=True)
    return OtelTracer(exporter=exporter, sampler=choose_sampler(rate_per_million), host_name=host_name)


def choose_sampler(rate_per_million: int | None) -> Sampler:
    """Return the sampler: the parent of a span decides, and for a span without one so many of a million are kept."""
    return ParentBased(TraceIdRatioBased(rate_per_million / _MILLION) if rate_per_million else ALWAYS_OFF)
