"""Spans for requests of the kubelet API (upstream: otelrestful's filter).

A client is not trusted with the trace: each request is the root of a new one.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from klet.model.foreign_text import shorten
from klet.model.tracing import SpanKind, Tracer

SCOPE: Final = "go.opentelemetry.io/contrib/instrumentation/github.com/emicklei/go-restful/otelrestful"
SERVICE: Final = "kubelet"
_LONGEST: Final = 256
_FAILING: Final = 500
_UPSTREAM_NAMES: Final = (
    ("{namespace}", "{podNamespace}"),
    ("{pod}", "{podID}"),
    ("{container}", "{containerName}"),
)


async def trace_request(
    tracer: Tracer,
    request: web.Request,
    answer: Callable[[], Awaitable[web.StreamResponse]],
    *,
    peer: str,
    is_secure: bool,
) -> web.StreamResponse:
    """Answer an authorized request in a span that is named after its route."""
    route = _route_of(request)
    attributes: dict[str, str | int] = {
        "http.method": shorten(request.method, _LONGEST),
        "http.scheme": "https" if is_secure else "http",
        "http.flavor": f"{request.version.major}.{request.version.minor}",
        "net.host.name": SERVICE,
    }
    if route:
        attributes["http.route"] = route
    if peer:
        attributes["net.sock.peer.addr"] = peer
    if agent := request.headers.get("User-Agent"):
        attributes["http.user_agent"] = shorten(agent, _LONGEST)
    with tracer.span(route, scope=SCOPE, kind=SpanKind.SERVER, attributes=attributes, is_root=True) as span:
        response = await answer()
        span.set({"http.status_code": response.status})
        if response.status >= _FAILING:
            span.fail("")
        return response


def _route_of(request: web.Request) -> str:
    """Return the path of the endpoint, with upstream's names of what varies in it."""
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else ""
    for ours, theirs in _UPSTREAM_NAMES:
        route = route.replace(ours, theirs)
    return route
