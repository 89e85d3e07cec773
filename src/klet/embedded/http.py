"""The Kubernetes API over HTTP: paths and verbs to the registry, lists and watches to the reader.

It serves JSON. Clients authenticate with a certificate or a bearer token.
"""

import re
import ssl
from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Final

import msgspec
from aiohttp import web

from klet.aio.clock import Clock
from klet.api.certificates import CertificateSigningRequest
from klet.api.codec import DecodeError, decode, encode
from klet.api.meta import DeleteOptions
from klet.embedded import refusals
from klet.embedded.faults import Cut, DelayAnswer, FallSilent, Fault, FaultRequest, Faults, RefuseRequest
from klet.embedded.identities import ApiUser, Identities
from klet.embedded.patching import DEEPEST, TYPES, Patch, is_too_deep
from klet.embedded.reading import Reader, read_filter, read_watch_options
from klet.embedded.refusals import RequestRefused
from klet.embedded.registry import ObjectRegistry, ObjectTarget
from klet.embedded.review_answers import ReviewAnswers
from klet.embedded.routes import Route, find_route, is_api_path
from klet.embedded.signing_requests import requested_by
from klet.version import KUBERNETES_VERSION

BODY_LIMIT: Final = 3 * 1024 * 1024
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_JSON: Final = "application/json"
_FOREVER: Final = timedelta(days=1)
_SECONDS: Final = re.compile(r"-?[0-9]{1,18}")


class ApiHandler:
    """Answers every request of one API server."""

    def __init__(
        self,
        *,
        registry: ObjectRegistry,
        reader: Reader,
        questions: ReviewAnswers,
        identities: Identities,
        faults: Faults,
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._reader = reader
        self._questions = questions
        self._identities = identities
        self._faults = faults
        self._clock = clock

    def application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_LIMIT)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except RequestRefused as error:
            return _refusal(error)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.method == "GET" and request.query.get("watch") in {"true", "1"}
        fault = self._faults.take(FaultRequest(request.method, request.path, is_watch))
        await self._suffer(fault, request, is_watch=is_watch)
        if request.path in _HEALTH:
            return web.Response(text="ok")
        user = self._identities.identify(request.headers.get("Authorization", ""), _certificate(request))
        if user is None:
            raise refusals.unauthorized()
        if request.path == "/version":
            major, minor, _ = KUBERNETES_VERSION.lstrip("v").split(".")
            return _json({"major": major, "minor": minor, "gitVersion": KUBERNETES_VERSION})
        if (answer := self._questions.answer(request.method, request.path, await request.read())) is not None:
            return _json(answer, status=201)
        route = find_route(request.path)
        if route is None:
            if is_api_path(request.path):
                raise refusals.no_resource()
            return web.Response(status=404, text="404 page not found\n")
        if is_watch:
            return await self._watch(request, route, fault)
        return await self._serve(request, route, user)

    async def _suffer(self, fault: Fault | None, request: web.Request, *, is_watch: bool) -> None:
        match fault:
            case RefuseRequest():
                raise fault.with_error
            case DelayAnswer():
                await self._clock.sleep(fault.by)
            case Cut() if not is_watch:
                _cut(request)
            case FallSilent() if not is_watch:
                await self._clock.sleep(_FOREVER)

    async def _serve(self, request: web.Request, route: Route, user: ApiUser) -> web.Response:
        target = ObjectTarget(route.kind, route.namespace, route.name, route.subresource)
        match request.method, bool(route.name):
            case "GET", True:
                return _json(self._registry.get(target))
            case "GET", False:
                return _json(self._reader.all(read_filter(route.kind, route.namespace, "", request.query)))
            case "POST", False:
                body = await _body(request)
                if route.kind.struct is CertificateSigningRequest:
                    body = requested_by(body, user)
                created = self._registry.create(route.kind, route.namespace, body)
                return _json(created, status=201)
            case "PUT", True:
                return _json(self._registry.replace(target, await _body(request)))
            case "PATCH", True:
                kind = request.content_type
                if kind not in TYPES:
                    raise refusals.unsupported_media_type(TYPES)
                return _json(self._registry.patch(target, Patch(kind, await request.read())))
            case "DELETE", True:
                return _json(self._registry.delete(target, await _delete_options(request)))
            case _:
                raise refusals.method_not_allowed()

    async def _watch(self, request: web.Request, route: Route, fault: Fault | None) -> web.StreamResponse:
        wanted = read_filter(route.kind, route.namespace, route.name, request.query)
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        async with aclosing(self._reader.watch(wanted, read_watch_options(request.query))) as events:
            await response.prepare(request)
            sent = 0
            while True:
                if isinstance(fault, Cut) and sent >= fault.after_events:
                    _cut(request)
                    return response
                if isinstance(fault, FallSilent) and sent >= fault.after_events:
                    await self._clock.sleep(_FOREVER)
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    break
                except RequestRefused as error:
                    event = {"type": "ERROR", "object": error.status}
                try:
                    await response.write(encode(event) + b"\n")
                except ConnectionError:
                    return response
                sent += 1
        await response.write_eof()
        return response


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        data = msgspec.json.decode(await request.read())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the object provided is unrecognized: couldn't get version/kind; json parse error: {error}"
        raise refusals.bad_request(message) from error
    if not isinstance(data, dict) or not isinstance(data.get("metadata", {}), dict):
        raise refusals.bad_request("the object provided is unrecognized: it is not an object with metadata")
    if is_too_deep(data):
        raise refusals.bad_request(f"the object provided is nested more than {DEEPEST} levels deep")
    return data


async def _delete_options(request: web.Request) -> DeleteOptions:
    body = await request.read()
    if not body:
        seconds = request.query.get("gracePeriodSeconds", "")
        return DeleteOptions(grace_period_seconds=int(seconds) if _SECONDS.fullmatch(seconds) else None)
    try:
        return decode(DeleteOptions, body)
    except DecodeError as error:
        raise refusals.bad_request(str(error)) from error


def _certificate(request: web.Request) -> Mapping[str, Any] | None:
    connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    return connection.getpeercert() if isinstance(connection, ssl.SSLObject | ssl.SSLSocket) else None


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _json(data: object, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=encode(data) + b"\n", content_type=_JSON)


def _refusal(error: RequestRefused) -> web.Response:
    response = web.Response(status=error.status.code, body=encode(error.status) + b"\n", content_type=_JSON)
    details = error.status.details
    if details is not None and details.retry_after_seconds:
        response.headers["Retry-After"] = str(details.retry_after_seconds)
    return response
