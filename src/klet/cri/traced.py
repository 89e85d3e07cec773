"""Spans for calls of the runtime, whose trace goes on in the runtime (upstream: otelgrpc's client handler)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from grpc import aio

from klet.model.tracing import Span, SpanKind, Tracer

SCOPE: Final = "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
_STATUS: Final = "rpc.grpc.status_code"


class TracedUnaryCalls(aio.UnaryUnaryClientInterceptor):
    """Makes a span for each call that has one answer."""

    def __init__(self, *, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_unary_unary(
        self,
        continuation: Callable[[aio.ClientCallDetails, Any], Awaitable[Any]],
        client_call_details: aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        span = start_call_span(self._tracer, client_call_details.method)
        try:
            _add_message(span, "SENT", request)
            call = await continuation(with_trace(client_call_details, span), request)
            code = await call.code()
            span.set({_STATUS: _number(code)})
            if code is grpc.StatusCode.OK:
                answer = await call
                if isinstance(answer, Message):
                    _add_message(span, "RECEIVED", answer)
            else:
                span.fail(await call.details() or "")
            return call
        finally:
            span.end()


class TracedStreams(aio.UnaryStreamClientInterceptor):
    """Makes a span for each stream, until it ends."""

    def __init__(self, *, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_unary_stream(
        self,
        continuation: Callable[[aio.ClientCallDetails, Any], Awaitable[Any]],
        client_call_details: aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        span = start_call_span(self._tracer, client_call_details.method)
        _add_message(span, "SENT", request)
        try:
            call = await continuation(with_trace(client_call_details, span), request)
        except BaseException:
            span.end()
            raise
        call.add_done_callback(lambda _call: span.end())
        return call


def build_interceptors(tracer: Tracer) -> list[aio.ClientInterceptor]:
    """Return what makes spans on a channel."""
    return [TracedUnaryCalls(tracer=tracer), TracedStreams(tracer=tracer)]


def start_call_span(tracer: Tracer, method: str | bytes) -> Span:
    """Start the span of a gRPC call, with the name and attributes of the semantic conventions 1.17."""
    name = (method.decode() if isinstance(method, bytes) else method).removeprefix("/")
    service, _, short = name.rpartition("/")
    attributes = {"rpc.service": service, "rpc.method": short, "rpc.system": "grpc"}
    return tracer.start(name, scope=SCOPE, kind=SpanKind.CLIENT, attributes=attributes)


def with_trace(details: aio.ClientCallDetails, span: Span) -> aio.ClientCallDetails:
    """Return the call with the trace in its metadata."""
    metadata = aio.Metadata(*(details.metadata or ()))
    for name, value in span.headers().items():
        metadata.add(name, value)
    return aio.ClientCallDetails(details.method, details.timeout, metadata, details.credentials, details.wait_for_ready)


def _add_message(span: Span, kind: str, message: Message) -> None:
    size = message.ByteSize()
    attributes: dict[str, str | int] = {"message.type": kind, "message.id": 1, "message.uncompressed_size": size}
    span.add_event("message", attributes)


def _number(code: grpc.StatusCode) -> int:
    number: int = code.value[0]
    return number
