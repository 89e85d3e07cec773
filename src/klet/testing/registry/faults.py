"""A proxy in front of a registry: it answers wrongly, waits, or breaks off in the middle of a blob, as a test wants."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from msgspec import Struct, field

from klet.testing.registry.process import ImageRegistry

MANIFESTS: Final = r"/manifests/"
BLOBS: Final = r"/blobs/sha256:"
_CHUNK: Final = 1 << 16
_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "host"})


class Answer(Struct, frozen=True):
    """Answer with this status instead of asking the registry."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class CutOff(Struct, frozen=True):
    """Close the connection after so many bytes of the body."""

    after: int


class Hold(Struct, frozen=True):
    """Stop after so many bytes of the body, and go on when the test says so."""

    after: int
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)


class HangUp(Struct, frozen=True):
    """Close the connection without an answer."""


Fault: TypeAlias = Answer | CutOff | Hold | HangUp


class SeenRequest(Struct, frozen=True):
    """A request of a runtime, as the proxy answered it."""

    method: str
    path: str
    range: str
    status: int


class _Rule(Struct):
    pattern: re.Pattern[str]
    fault: Fault
    times: int | None


class FaultyProxy:
    """Forwards to a registry; what a rule matches is answered wrongly. The first rule that matches counts."""

    def __init__(self, *, behind: ImageRegistry) -> None:
        # Bound at once: another test run may look for free ports at this moment.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._behind = behind
        self._rules: list[_Rule] = []
        self.seen: list[SeenRequest] = []
        self.registry = ImageRegistry(f"127.0.0.1:{self._socket.getsockname()[1]}", behind.authorize)
        """The registry as a runtime sees it through the proxy."""

    def inject(self, pattern: str, fault: Fault, *, times: int | None = None) -> None:
        """Apply a fault to requests whose path matches, for so many of them if that is said."""
        self._rules.append(_Rule(re.compile(pattern), fault, times))

    def heal(self) -> None:
        """Forward everything from now on."""
        self._rules.clear()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False) as session:

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                return await self._handle(request, session)

            # A block that is left while a body is held must not wait for it.
            runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0)
            await runner.setup()
            try:
                await web.SockSite(runner, self._socket).start()
                yield
            finally:
                await runner.cleanup()

    def _find(self, path: str) -> Fault | None:
        for rule in self._rules:
            if rule.times != 0 and rule.pattern.search(path):
                if rule.times is not None:
                    rule.times -= 1
                return rule.fault
        return None

    async def _handle(self, request: web.BaseRequest, session: aiohttp.ClientSession) -> web.StreamResponse:
        fault = self._find(request.path)
        if isinstance(fault, Answer):
            self._note(request, fault.status)
            return web.Response(status=fault.status, text=fault.body, headers=dict(fault.headers))
        if isinstance(fault, HangUp):
            self._note(request, 0)
            _close(request)
            return web.Response()
        return await self._forward(request, session, fault)

    async def _forward(
        self, request: web.BaseRequest, session: aiohttp.ClientSession, fault: CutOff | Hold | None
    ) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _BY_HOP}
        try:
            async with session.request(
                request.method,
                f"http://{self._behind.address}{request.raw_path}",
                headers=headers | {"Host": self.registry.address},
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            ) as answer:
                self._note(request, answer.status)
                response = web.StreamResponse(status=answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in _BY_HOP:
                        response.headers.add(name, value)
                await response.prepare(request)
                await self._copy(request, answer, response, fault)
                return response
        except aiohttp.ClientError:  # the registry died: so does the answer
            _close(request)
            return web.Response()

    async def _copy(
        self,
        request: web.BaseRequest,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        fault: CutOff | Hold | None,
    ) -> None:
        sent = 0
        with suppress(ConnectionError):
            async for piece in answer.content.iter_chunked(_CHUNK):
                if fault is not None and sent <= fault.after < sent + len(piece):
                    await response.write(piece[: fault.after - sent])
                    if isinstance(fault, CutOff):
                        _close(request)
                        return
                    fault.reached.set()
                    await fault.go_on.wait()
                    await response.write(piece[fault.after - sent :])
                else:
                    await response.write(piece)
                sent += len(piece)
            await response.write_eof()

    def _note(self, request: web.BaseRequest, status: int) -> None:
        self.seen.append(SeenRequest(request.method, request.path, request.headers.get("Range", ""), status))


@asynccontextmanager
async def run_faulty_proxy(behind: ImageRegistry) -> AsyncIterator[FaultyProxy]:
    """Run a proxy without faults in front of a registry."""
    proxy = FaultyProxy(behind=behind)
    async with proxy.serve():
        yield proxy


def _close(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.close()
