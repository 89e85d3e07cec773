"""What happens to every request before its handler: routing, authentication, authorization."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Final, Protocol, assert_never

from aiohttp import web
from aiohttp.typedefs import Middleware

from klet.model.foreign_text import shorten
from klet.model.verbosity import CHANGES
from klet.server.auth.gate import Admission, Asked, Turned
from klet.server.endpoints import AREAS, Area, Door, Handler, Routes, WithoutDebugging
from klet.server.front import Front, front_of
from klet.server.places import Inside, Moved, Outside, Place, find_health, find_place
from klet.server.tls.stream import CLIENT_CERTIFICATE

logger = logging.getLogger(__name__)

_LONGEST_SHOWN: Final = 256
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}


class Gatekeeper(Protocol):
    """Authenticates and authorizes requests."""

    async def admit(self, asked: Asked) -> Admission: ...


def build_application(
    routes: Sequence[Routes], *, door: Door, gate: Gatekeeper | None = None, has_debugging: bool = True
) -> web.Application:
    """Return the endpoints of one listener. On all but the API's own port every client is served, without a gate.

    `has_debugging` is `enableDebuggingHandlers`.
    """
    if (door is Door.API) != (gate is not None):
        raise ValueError(f"the listener {door} has a gate, or has none, against the table of endpoints")
    find = find_health if door is Door.HEALTH else partial(find_place, has_debugging=has_debugging)
    application = web.Application(middlewares=[_guard(gate, find)])
    application.on_response_prepare.append(_forget_server)
    for area in AREAS:
        if has_debugging or area.without_debugging is WithoutDebugging.KEPT:
            _add_endpoints(application.router, area, door, routes)
        elif area.without_debugging is WithoutDebugging.REFUSED:
            # Paths are matched decoded: `.` alone would not match one with a line break (%0A).
            application.router.add_route("*", f"{area.root.removesuffix('/')}/{{rest:(?s:.*)}}", _refuse)
    return application


def _add_endpoints(router: web.UrlDispatcher, area: Area, door: Door, routes: Sequence[Routes]) -> None:
    for endpoint in area.endpoints:
        handler = endpoint.find_handler(routes) if endpoint.find_handler is not None else None
        if handler is None or door not in area.doors_of(endpoint):
            continue
        for path in endpoint.paths:
            for method in endpoint.methods or ("*",):
                router.add_route(method, path, handler)


async def _refuse(request: web.Request) -> web.Response:  # noqa: ARG001 - aiohttp's signature
    return web.Response(status=405, text="Debug endpoints are disabled.\n", headers=_NOSNIFF)


def _guard(gate: Gatekeeper | None, find: Callable[[str], Place]) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        front = front_of(request)
        began = asyncio.get_running_loop().time()
        try:
            response = await _answer(request, handler, front)
            _log_request(request, response, front, began=began)
            if front is not None and front.is_retired:
                response.force_close()
            return response
        finally:
            if front is not None:
                front.done()

    async def _answer(request: web.Request, handler: Handler, front: Front | None) -> web.StreamResponse:
        place = find(request.path)
        match place:
            case Outside():
                return web.Response(status=404, text="404 page not found\n", headers=_NOSNIFF)
            case Moved():
                return _redirect(request, place.to)
            case Inside():
                admission = await gate.admit(_asked(request, front)) if gate is not None else None
                if isinstance(admission, Turned):
                    return web.Response(status=admission.status, text=admission.body, headers=admission.headers)
                if front is not None:
                    front.admitted(is_known=admission is not None and not admission.is_anonymous)
                return await _handle(request, handler)
            case _:
                assert_never(place)

    return guard


def _log_request(request: web.Request, response: web.StreamResponse, front: Front | None, *, began: float) -> None:
    """Log a request and its answer, as upstream's httplog does, but without the query: it may hold a command."""
    if logger.isEnabledFor(CHANGES):
        extra = {
            "verb": request.method,
            "URI": shorten(request.path, _LONGEST_SHOWN),
            "latency": f"{(asyncio.get_running_loop().time() - began) * 1000:.3f}ms",
            "userAgent": shorten(request.headers.get("User-Agent", ""), _LONGEST_SHOWN),
            "srcIP": front.visit.address if front is not None else "",
            "resp": response.status,
        }
        logger.log(CHANGES, "HTTP", extra=extra)


async def _forget_server(_request: web.Request, response: web.StreamResponse) -> None:
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


def _asked(request: web.Request, front: Front | None) -> Asked:
    upgrade = front.upgrade if front is not None else None
    is_websocket = upgrade is not None and "websocket" in (value.lower() for value in upgrade.all("upgrade"))
    return Asked(
        method=request.method,
        path=request.path,
        authorization=request.headers.get("Authorization", ""),
        protocols=tuple(request.headers.getall("Sec-WebSocket-Protocol", ())) if is_websocket else (),
        client=front.visit.address if front is not None else "",
        certificate=request.transport.get_extra_info(CLIENT_CERTIFICATE) if request.transport else None,
    )
