"""HTTP to one API server: connections, TLS, credentials. Knows nothing of Kubernetes objects.

When the client certificate changes, every connection is closed, watches included, so that nothing goes on under the old
one. Dead peers are noticed by TCP keep-alive: a watch may rightly be silent for long.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from klet.kube.access import Access, Authority, NoVerification, PemSource
from klet.kube.credentials import Credentials, CredentialSet
from klet.kube.errors import CredentialError, KubeconfigError, Unreachable
from klet.kube.metrics import RequestCounter, RestClientMetrics
from klet.kube.reach import Reach
from klet.kube.traced import note_response, start_request_span
from klet.model.hidden_fields import HidesFields
from klet.model.tracing import Tracer
from klet.model.verbosity import REQUEST_STARTS, REQUESTS
from klet.version import USER_AGENT

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = timedelta(seconds=30)
# Half a minute of silence of the peer's kernel ends a connection, as upstream's HTTP/2 pings do.
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class HttpRequest(HidesFields, frozen=True):
    """One HTTP request below the server's address."""

    HIDDEN = frozenset({"body"})

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    content_type: str = "application/json"


class HttpAnswer(HidesFields, frozen=True):
    """A complete HTTP response."""

    HIDDEN = frozenset({"body"})

    code: int
    retry_after: str
    body: bytes


class Transport:
    """Sends requests to one API server."""

    def __init__(
        self,
        *,
        access: Access,
        credentials: Credentials,
        tracer: Tracer | None = None,
        metrics: RestClientMetrics | None = None,
    ) -> None:
        host = URL(access.server).authority
        self._counter = RequestCounter(metrics=metrics, host=host) if metrics is not None else None
        self._access = access
        self._tracer = tracer
        self._credentials = credentials
        self._base = str(URL(access.server)).rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._shown = CredentialSet()
        self._useless = CredentialSet()
        self._open: set[aiohttp.ClientResponse] = set()
        self._reach = Reach()
        self._answered_at = 0.0

    @property
    def counter(self) -> RequestCounter | None:
        """Counts what is sent here."""
        return self._counter

    @property
    def answered_at(self) -> float:
        """When the server last sent anything, by the time of the event loop."""
        return self._answered_at

    @property
    def reach(self) -> Reach:
        """Whether the server answers what is sent here."""
        return self._reach

    async def send(self, request: HttpRequest, *, timeout: timedelta) -> HttpAnswer:
        """Return the answer, whatever its status; raises Unreachable or CredentialError. `timeout` covers it all."""
        try:
            async with asyncio.timeout(timeout.total_seconds()), self._exchange(request) as response:
                body = await response.read()
                self._note_answer()
                self._reach.answered(response.status)
                if self._counter is not None:
                    self._counter.note_sizes(request.method, sent=len(request.body or b""), received=len(body))
                return HttpAnswer(response.status, response.headers.get("Retry-After", ""), body)
        except TimeoutError as error:
            raise self._unreachable(request, f"no answer within {timeout.total_seconds():g} s") from error
        except _ConnectionsReplaced as error:
            raise _unreachable(request, str(error)) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise self._unreachable(request, str(error) or type(error).__name__) from error

    @asynccontextmanager
    async def stream(self, request: HttpRequest, *, silence: timedelta) -> AsyncIterator["Stream"]:
        """Return an answer that is read as it arrives; raises Unreachable if it does not even begin for too long."""
        try:
            async with AsyncExitStack() as opened:
                async with asyncio.timeout(silence.total_seconds()):
                    response = await opened.enter_async_context(self._exchange(request))
                yield Stream(response, request, self._reach, self._note_answer)
        except _ConnectionsReplaced as error:
            raise _unreachable(request, str(error)) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise self._unreachable(request, str(error) or type(error).__name__) from error

    async def reconnect(self) -> None:
        """Close every connection; whatever runs on one breaks off."""
        session, self._session = self._session, None
        for response in self._open:
            # Closing a session does not wake its readers.
            response.content.set_exception(_ConnectionsReplaced("connections are replaced"))
        if session is not None:
            if self._counter is not None:
                self._counter.note_connections(-1)
            await session.close()

    async def refresh(self) -> None:
        """Close every connection that was made with another client certificate than the one there is now."""
        if self._session is not None:
            await self._session_for(await self._credentials.current())

    async def close(self) -> None:
        await self.reconnect()

    @asynccontextmanager
    async def _exchange(self, request: HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        shown = await self._credentials.current()
        session = await self._session_for(shown)
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        if shown.token:
            headers["Authorization"] = f"Bearer {shown.token}"
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        url = URL(f"{self._base}/{request.path.lstrip('/')}", encoded=True)
        if request.query:
            url = url.with_query(list(request.query))
        if self._tracer is None:
            async with self._request(session, request, url, headers) as response:
                yield response
            return
        span = start_request_span(self._tracer, request.method, url)
        try:
            async with self._request(session, request, url, {**headers, **span.headers()}) as response:
                note_response(span, response.status)
                yield response
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            span.set({"error.type": type(error).__name__})
            span.fail(str(error))
            raise
        finally:
            span.end()

    @asynccontextmanager
    async def _request(
        self, session: aiohttp.ClientSession, request: HttpRequest, url: URL, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        began = asyncio.get_running_loop().time()
        _log_request(request, url)
        sending = session.request(
            request.method,
            url,
            data=request.body,
            headers=headers,
            allow_redirects=False,
            proxy=self._access.proxy or None,
            server_hostname=self._access.server_name or None,
        )
        async with self._counted(sending, request, began) as response:
            _log_response(request, url, response, began=began)
            if response.status == 401:
                self._credentials.refuse()
            self._open.add(response)
            try:
                yield response
            finally:
                self._open.discard(response)
                _cut_off(response)

    @asynccontextmanager
    async def _counted(
        self, sending: AbstractAsyncContextManager[aiohttp.ClientResponse], request: HttpRequest, began: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer; count it, or that there is none."""
        counter, is_answered = self._counter, False
        try:
            async with sending as response:
                is_answered = True
                if counter is not None:
                    seconds = asyncio.get_running_loop().time() - began
                    counter.note_head(request.method, response.status, seconds=seconds)
                yield response
        finally:
            if counter is not None and not is_answered:
                counter.note_failure(request.method, seconds=asyncio.get_running_loop().time() - began)

    async def _session_for(self, shown: CredentialSet) -> aiohttp.ClientSession:
        if self._session is not None and self._is_of(shown):
            return self._session
        try:
            context = client_context(self._access.authority, shown)
        except (CredentialError, KubeconfigError) as error:
            if self._session is None:
                raise
            # Half written, or only one of two files: what the connections show is still good.
            if shown != self._useless:
                self._useless = shown
                logger.warning("The client certificate stays as it was", extra={"error": str(error)})
            return self._session
        await self.reconnect()
        if self._session is None:
            # No limit: each watched object holds a connection of its own, and none may wait for another.
            connector = aiohttp.TCPConnector(
                ssl=context, limit=0, socket_factory=_make_socket, resolver=_MeasuredResolver(self._counter)
            )
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT.total_seconds())
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar()
            )
            self._shown = shown
            if self._counter is not None:
                self._counter.note_connections(+1)
        return self._session

    def _note_answer(self) -> None:
        self._answered_at = asyncio.get_running_loop().time()

    def _unreachable(self, request: HttpRequest, why: str) -> Unreachable:
        error = _unreachable(request, why)
        self._reach.failed(str(error))
        return error

    def _is_of(self, shown: CredentialSet) -> bool:
        """Return whether the connections show this client certificate."""
        return (self._shown.certificate, self._shown.key) == (shown.certificate, shown.key)


class _MeasuredResolver(aiohttp.ThreadedResolver):
    """Looks names up, and measures how long that takes. aiohttp resolves no addresses."""

    def __init__(self, counter: RequestCounter | None) -> None:
        super().__init__()
        self._counter = counter

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await super().resolve(host, port, family)
        finally:
            if self._counter is not None:
                self._counter.note_lookup(host, seconds=loop.time() - began)


class _ConnectionsReplaced(aiohttp.ClientConnectionError):
    """The agent itself has closed the connection: no sign of trouble with the server."""


class Stream:
    """The body of an answer while it arrives."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        request: HttpRequest,
        reach: Reach,
        note_answer: Callable[[], None],
    ) -> None:
        self._response = response
        self._request = request
        self._reach = reach
        self._note_answer = note_answer

    @property
    def code(self) -> int:
        return self._response.status

    async def answer(self) -> HttpAnswer:
        """Return all of it, for an answer that turns out to be an error."""
        body = await self._response.read()
        self._reach.answered(self.code)
        return HttpAnswer(self.code, self._response.headers.get("Retry-After", ""), body)

    async def lines(
        self, *, silence: timedelta, when_silent: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield line by line, however long they are; raises Unreachable when nothing arrives for too long.

        With `when_silent` that is called instead, after each such time, and decides by raising.
        """
        kept: list[bytes] = []
        # A head alone does not count: it may be all that ever comes.
        is_counted = False
        while True:
            try:
                async with asyncio.timeout(silence.total_seconds()):
                    chunk = await self._response.content.readany()
            except TimeoutError as error:
                if when_silent is not None:
                    await when_silent()
                    continue
                silent = _unreachable(self._request, f"nothing for {silence.total_seconds():g} s")
                self._reach.failed(str(silent))
                raise silent from error
            if not chunk:
                return
            self._note_answer()
            if not is_counted:
                self._reach.answered(self.code)
                is_counted = True
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield b"".join((*kept, line))
                kept.clear()
            if rest:
                kept.append(rest)


def _make_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    for level, option, value in _KEEP_ALIVE:
        made.setsockopt(level, option, value)
    return made


def _log_request(request: HttpRequest, url: URL) -> None:
    """Log a request as it is sent, without its headers and its body: they may hold credentials and Secrets."""
    if logger.isEnabledFor(REQUEST_STARTS):
        logger.log(REQUEST_STARTS, "Request", extra={"verb": request.method, "url": _shown(url)})


def _log_response(request: HttpRequest, url: URL, response: aiohttp.ClientResponse, *, began: float) -> None:
    """Log how a request was answered, and how long that took."""
    if logger.isEnabledFor(REQUESTS):
        milliseconds = round((asyncio.get_running_loop().time() - began) * 1000)
        status = f"{response.status} {response.reason or ''}".rstrip()
        extra = {"verb": request.method, "url": _shown(url), "status": status, "milliseconds": milliseconds}
        logger.log(REQUESTS, "Response", extra=extra)


def _shown(url: URL) -> str:
    return str(url.with_user(None))


def _cut_off(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of an answer that was not read to its end: a TLS goodbye would wait for the server's."""
    connection = response.connection  # none if the answer is complete
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _unreachable(request: HttpRequest, why: str) -> Unreachable:
    return Unreachable(f'{request.method} "{request.path}": {why}')


def client_context(authority: Authority, shown: CredentialSet) -> ssl.SSLContext:
    """Return the context for one server and one set of credentials."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    match authority:
        case NoVerification():
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        case PemSource():
            _trust(context, authority)
        case _:
            context.load_default_certs()
    if shown.certificate:
        _load_pair(context, shown)
    return context


def _trust(context: ssl.SSLContext, authority: PemSource) -> None:
    source = "inline data" if authority.path is None else str(authority.path)
    try:
        context.load_verify_locations(cadata=authority.read().decode("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"certificate-authority: {source}: {error}") from error


def _load_pair(context: ssl.SSLContext, shown: CredentialSet) -> None:
    """Load a pair. OpenSSL reads pairs from files only: an anonymous one keeps the key off the disk."""
    descriptor = os.memfd_create("klet-client", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            # A file that holds both is there twice.
            file.write(shown.certificate if shown.key == shown.certificate else shown.certificate + b"\n" + shown.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (ssl.SSLError, OSError) as error:
        raise CredentialError(f"client certificate and key cannot be used: {error}") from error
    finally:
        os.close(descriptor)
