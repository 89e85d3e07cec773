"""What the HTTP server (kubelet server) does before its handlers: routing, authentication, authorization."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from html import escape
from typing import Final, Protocol, assert_never

from aiohttp import web
from aiohttp.typedefs import Middleware

from klet.model.foreign_text import shorten
from klet.model.tracing import Tracer
from klet.model.verbosity import CHANGES
from klet.server.auth.filter import AuthRefusal, AuthRequest, AuthResult
from klet.server.connection import HttpConnection, connection_of
from klet.server.endpoint_types import (
    EndpointGroup,
    EndpointSupport,
    Handler,
    HandlerSwitch,
    ListenerKind,
    Routes,
    WithoutDebugging,
)
from klet.server.endpoints import ENDPOINT_GROUPS
from klet.server.paths import KnownPath, PathMatch, RedirectedPath, UnknownPath, match_health_path, match_path
from klet.server.tls.stream import CLIENT_CERTIFICATE
from klet.server.traced import trace_request

logger = logging.getLogger(__name__)

_LONGEST_SHOWN: Final = 256
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}


class RequestAuth(Protocol):
    """Authenticates and authorizes requests."""

    async def check(self, request: AuthRequest) -> AuthResult: ...


def build_application(
    routes: Sequence[Routes],
    *,
    kind: ListenerKind,
    auth: RequestAuth | None = None,
    has_debugging: bool = True,
    switched_off: Collection[HandlerSwitch] = (),
    tracer: Tracer | None = None,
    count: Middleware | None = None,
) -> web.Application:
    """Return the endpoints of one listener. On all but the API's own port every client is served, without a check.

    `has_debugging` is `enableDebuggingHandlers`. With a tracer, a request that is let in has a span. A path behind a
    gate is there if the routes have its handler. `count` sees every request first.
    """
    if (kind is ListenerKind.API) != (auth is not None):
        raise ValueError(f"the listener {kind} checks requests, or does not, against the table of endpoints")
    find: Callable[[str], PathMatch] = match_health_path
    if kind is not ListenerKind.HEALTH:
        gated = _open_gates(routes, kind, has_debugging=has_debugging)
        find = partial(match_path, has_debugging=has_debugging, gated=gated)
    counters = [count] if count is not None else []
    application = web.Application(middlewares=[*counters, _check_requests(auth, find, tracer)])
    application.on_response_prepare.append(_drop_server_header)
    for group in ENDPOINT_GROUPS:
        is_served = has_debugging or group.without_debugging is WithoutDebugging.KEPT
        if is_served and group.switch is not None and group.switch in switched_off:
            _add_refusal(application.router, group, group.switch)
        elif is_served:
            _add_endpoints(application.router, group, kind, routes)
        elif group.without_debugging is WithoutDebugging.REFUSED:
            _add_refusal(application.router, group, "Debug endpoints are disabled.\n")
    return application


def _open_gates(routes: Sequence[Routes], kind: ListenerKind, *, has_debugging: bool) -> frozenset[str]:
    """Return the paths behind gates that are there."""
    return frozenset(
        path
        for group in ENDPOINT_GROUPS
        if has_debugging or group.without_debugging is WithoutDebugging.KEPT
        for endpoint in group.endpoints
        if endpoint.support is EndpointSupport.GATED and kind in group.listeners_of(endpoint)
        if endpoint.find_handler is not None and endpoint.find_handler(routes) is not None
        for path in endpoint.paths
    )


def _add_refusal(router: web.UrlDispatcher, group: EndpointGroup, text: str) -> None:
    """Refuse every method, at the root and below it."""

    async def refuse(request: web.Request) -> web.Response:  # noqa: ARG001 - aiohttp's signature
        return web.Response(status=405, text=text, headers=_NOSNIFF)

    root = group.root.removesuffix("/")
    if group.is_tree:
        # Paths are matched decoded: `.` alone would not match one with a line break (%0A).
        router.add_route("*", f"{root}/{{rest:(?s:.*)}}", refuse)
    else:
        router.add_route("*", root, refuse)


def _add_endpoints(
    router: web.UrlDispatcher, group: EndpointGroup, kind: ListenerKind, routes: Sequence[Routes]
) -> None:
    for endpoint in group.endpoints:
        handler = endpoint.find_handler(routes) if endpoint.find_handler is not None else None
        if handler is None or kind not in group.listeners_of(endpoint):
            continue
        for path in endpoint.paths:
            for method in endpoint.methods or ("*",):
                router.add_route(method, path, handler)


def _check_requests(auth: RequestAuth | None, find: Callable[[str], PathMatch], tracer: Tracer | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = connection_of(request)
        began = asyncio.get_running_loop().time()
        try:
            response = await _answer(request, handler, connection)
            _log_request(request, response, connection, began=began)
            if connection is not None and connection.is_retired:
                response.force_close()
            return response
        finally:
            if connection is not None:
                connection.finish_request()

    async def _answer(request: web.Request, handler: Handler, connection: HttpConnection | None) -> web.StreamResponse:
        found = find(request.path)
        match found:
            case UnknownPath():
                return web.Response(status=404, text="404 page not found\n", headers=_NOSNIFF)
            case RedirectedPath():
                return _redirect(request, found.to)
            case KnownPath():
                result = await auth.check(_auth_request(request, connection)) if auth is not None else None
                if isinstance(result, AuthRefusal):
                    return web.Response(status=result.status, text=result.body, headers=result.headers)
                if connection is not None:
                    connection.mark_authorized(is_authenticated=result is not None and not result.is_anonymous)
                if tracer is not None:
                    peer = connection.tracked.address if connection is not None else ""
                    answer = partial(_handle, request, handler)
                    return await trace_request(tracer, request, answer, peer=peer, is_secure=auth is not None)
                return await _handle(request, handler)
            case _:
                assert_never(found)

    return check


def _log_request(
    request: web.Request, response: web.StreamResponse, connection: HttpConnection | None, *, began: float
) -> None:
    """Log a request and its answer, as upstream's httplog does, but without the query: it may hold a command."""
    if logger.isEnabledFor(CHANGES):
        extra = {
            "verb": request.method,
            "URI": shorten(request.path, _LONGEST_SHOWN),
            "latency": f"{(asyncio.get_running_loop().time() - began) * 1000:.3f}ms",
            "userAgent": shorten(request.headers.get("User-Agent", ""), _LONGEST_SHOWN),
            "srcIP": connection.tracked.address if connection is not None else "",
            "resp": response.status,
        }
        logger.log(CHANGES, "HTTP", extra=extra)


async def _drop_server_header(_request: web.Request, response: web.StreamResponse) -> None:
    """Drop aiohttp's Server header: upstream sends none, and it would only help an attacker."""
    response.headers.popall("Server", None)


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        headers = {"Allow": ", ".join(sorted(error.allowed_methods))}
        return web.Response(status=405, text="405: Method Not Allowed", headers=headers)
    except web.HTTPNotFound:
        return web.Response(status=404, text="404: Page Not Found")


def _redirect(request: web.Request, to: str) -> web.Response:
    query = request.rel_url.raw_query_string
    location = f"{to}?{query}" if query else to
    body = f'<a href="{escape(location)}">Temporary Redirect</a>.\n\n' if request.method == "GET" else ""
    return web.Response(status=307, text=body, headers={"Location": location}, content_type="text/html")


def _auth_request(request: web.Request, connection: HttpConnection | None) -> AuthRequest:
    upgrade = connection.upgrade if connection is not None else None
    is_websocket = upgrade is not None and "websocket" in (value.lower() for value in upgrade.all("upgrade"))
    return AuthRequest(
        method=request.method,
        path=request.path,
        authorization=request.headers.get("Authorization", ""),
        protocols=tuple(request.headers.getall("Sec-WebSocket-Protocol", ())) if is_websocket else (),
        client=connection.tracked.address if connection is not None else "",
        certificate=request.transport.get_extra_info(CLIENT_CERTIFICATE) if request.transport else None,
    )
