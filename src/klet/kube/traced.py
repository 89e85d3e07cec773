"""Spans for requests to the API server (upstream: otelhttp's transport)."""

from typing import Final

from yarl import URL

from klet.model.tracing import Span, SpanKind, Tracer

SCOPE: Final = "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
_REFUSED: Final = 400


def start_request_span(tracer: Tracer, method: str, url: URL) -> Span:
    """Start the span of a request, which lasts until its answer was read; that of a watch until it ends."""
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "url.full": str(url.with_user(None)),
        "server.address": url.host or "",
        "network.protocol.version": "1.1",
    }
    if url.explicit_port is not None:
        attributes["server.port"] = url.explicit_port
    return tracer.start(f"HTTP {method}", scope=SCOPE, kind=SpanKind.CLIENT, attributes=attributes)


def note_response(span: Span, code: int) -> None:
    """Note how a request was answered."""
    span.set({"http.response.status_code": code})
    if code >= _REFUSED:
        span.set({"error.type": str(code)})
        span.fail("")
