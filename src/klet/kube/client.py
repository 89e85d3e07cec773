"""Typed requests to an API server: get, list, create, update, patch, delete, subresources and reviews."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from klet.aio.clock import Clock
from klet.api.base import ApiObject
from klet.api.codec import DecodeError, decode, encode
from klet.api.kinds import kind_of
from klet.api.meta import DeleteOptions, ObjectList, Preconditions, Status
from klet.kube.errors import ApiError, KubeError, Unauthorized, api_error
from klet.kube.reach import Reach
from klet.kube.throttle import Throttle
from klet.kube.transport import HttpAnswer, HttpRequest, Transport

T = TypeVar("T", bound=ApiObject)
S = TypeVar("S", bound=ApiObject)

PAGE: Final = 500
REQUEST_TIMEOUT: Final = timedelta(seconds=30)
"""The timeout of a request that is not urgent."""
RETRIES: Final = 10
"""How often an answer that names a time to try again is followed by another try."""
_SHOWN: Final = 1024
"""How much of an answer that is no Status goes into an error."""


class PatchType(StrEnum):
    """The content types of patches."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class KubeClient:
    """Requests to one API server. `timeout` is for each of them."""

    def __init__(self, *, transport: Transport, throttle: Throttle, timeout: timedelta, clock: Clock) -> None:
        self._transport = transport
        self._throttle = throttle
        self._timeout = timeout
        self._clock = clock

    @property
    def reach(self) -> Reach:
        """Whether the API server answers."""
        return self._transport.reach

    async def get(self, struct: type[T], name: str, namespace: str = "", *, resource_version: str = "") -> T:
        query = (("resourceVersion", resource_version),) if resource_version else ()
        return await self._ask(struct, HttpRequest("GET", kind_of(struct).path(namespace, name), query))

    async def list(
        self, struct: type[T], namespace: str = "", *, query: Sequence[tuple[str, str]] = ()
    ) -> "ObjectList[T]":
        """Return all of it, page by page. The version is that of the first page."""
        path = kind_of(struct).path(namespace)
        items: list[T] = []
        first: ObjectList[T] | None = None
        token = ""
        while first is None or token:
            pages = (("limit", str(PAGE)), *((("continue", token),) if token else ()))
            # A continue token carries its version with it.
            asked = [pair for pair in query if not (token and pair[0].startswith("resourceVersion"))]
            page: ObjectList[T] = await self._ask(of_type(struct), HttpRequest("GET", path, (*asked, *pages)))
            first = page if first is None else first
            items.extend(page.items)
            token = page.metadata.continue_
        return msgspec.structs.replace(first, items=tuple(items))

    async def create(self, obj: T, namespace: str = "") -> T:
        path = kind_of(type(obj)).path(namespace)
        return await self._ask(type(obj), HttpRequest("POST", path, body=_body(obj)))

    async def submit(self, obj: ApiObject, namespace: str = "") -> None:
        """Create an object as `create` does, without reading what the server made of it."""
        await self._send(HttpRequest("POST", kind_of(type(obj)).path(namespace), body=_body(obj)))

    async def create_sub(self, struct: type[ApiObject], name: str, namespace: str, subresource: str, body: S) -> S:
        """Post to a subresource that answers with what was posted (`token`, `eviction`, `binding`)."""
        path = f"{kind_of(struct).path(namespace, name)}/{subresource}"
        return await self._ask(type(body), HttpRequest("POST", path, body=encode(body)))

    async def review(self, path: str, body: S) -> S:
        """Ask a question that is not stored (TokenReview, SubjectAccessReview)."""
        return await self._ask(type(body), HttpRequest("POST", path, body=encode(body)))

    async def update(self, obj: T, name: str, namespace: str = "") -> T:
        """Replace a whole object. Only for kinds that klet knows completely: what it does not know would be lost."""
        path = kind_of(type(obj)).path(namespace, name)
        return await self._ask(type(obj), HttpRequest("PUT", path, body=_body(obj)))

    async def patch(
        self,
        struct: type[T],
        name: str,
        namespace: str = "",
        *,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        how: PatchType = PatchType.STRATEGIC,
        subresource: str = "",
    ) -> T:
        path = kind_of(struct).path(namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._ask(struct, HttpRequest("PATCH", path, body=encode(patch), content_type=how))

    async def delete(
        self, struct: type[ApiObject], name: str, namespace: str = "", *, grace: int | None = None, uid: str = ""
    ) -> None:
        """Delete one object; with `uid`, only if it is still that one."""
        options = DeleteOptions(
            api_version="v1",
            kind="DeleteOptions",
            grace_period_seconds=grace,
            preconditions=Preconditions(uid=uid) if uid else None,
        )
        await self._send(HttpRequest("DELETE", kind_of(struct).path(namespace, name), body=encode(options)))

    async def read(self, path: str) -> bytes:
        """Return the body of any path, such as `/healthz`."""
        return (await self._send(HttpRequest("GET", path))).body

    async def _ask(self, struct: type[S], request: HttpRequest) -> S:
        answer = await self._send(request)
        try:
            return decode(struct, answer.body)
        except DecodeError as error:
            raise KubeError(f'{request.method} "{request.path}": the answer cannot be read: {error}') from error

    async def _send(self, request: HttpRequest) -> HttpAnswer:
        renewals, retries = 1, RETRIES
        while True:
            await self._wait_for_turn(request.method)
            answer = await self._transport.send(request, timeout=self._timeout)
            if answer.code < 400:
                return answer
            error = refusal(answer)
            if isinstance(error, Unauthorized) and renewals:
                renewals -= 1  # the credentials may just have been renewed; a second refusal is meant
            elif error.retry_after is not None and retries and (error.code == 429 or error.code >= 500):
                retries -= 1
                await self._clock.sleep(error.retry_after)
            else:
                raise error
            if (counter := self._transport.counter) is not None:
                counter.note_retry(request.method, error.code)

    async def _wait_for_turn(self, method: str) -> None:
        began = self._clock.monotonic()
        await self._throttle.wait()
        if (counter := self._transport.counter) is not None:
            counter.note_wait(method, self._clock.monotonic() - began)


def of_type(struct: type[T]) -> type["ObjectList[T]"]:
    """Return the list of a struct, as a type to decode with."""
    return ObjectList[struct]  # type: ignore[valid-type]  # the parameter is only known at run time


def refusal(answer: HttpAnswer) -> ApiError:
    """Return the error that an answer stands for; proxies and overloaded servers answer without a Status."""
    seconds = answer.retry_after.strip()
    retry_after = timedelta(seconds=int(seconds)) if seconds.isdecimal() else None
    try:
        status = decode(Status, answer.body)
    except DecodeError:
        status = Status()
    if status.kind != "Status":
        text = answer.body[:_SHOWN].decode(errors="replace").strip()
        status = Status(message=text or f"the server answered {answer.code}")
    return api_error(msgspec.structs.replace(status, code=answer.code), retry_after=retry_after)


def _body(obj: ApiObject) -> bytes:
    """Return an object with the names that its type does not store twice."""
    kind = kind_of(type(obj))
    names = b'{"apiVersion":"%b","kind":"%b"' % (kind.api_version.encode(), kind.name.encode())
    fields = encode(obj)
    return names + b"}" if fields == b"{}" else names + b"," + fields[1:]
