"""What containers answer to probes: over HTTP, over gRPC, and as the output of a command.

An input's first line says which. An HTTP answer must not depend on the pieces that it comes in; where it redirects to,
the next request must still be one request. A gRPC answer goes over a real connection.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias

import grpc
from grpc import aio

from klet.api.container import Container
from klet.api.handlers import ExecAction, GRPCAction, Probe
from klet.api.pod import Pod
from klet.host.http_response import MAX_BODY, HttpResponse, ResponseError, ResponseReader
from klet.model.foreign_text import read_output
from klet.model.http_get import Address, build_address, follow, write_request
from klet.model.runtime import ContainerId
from klet.probes.handler import MAX_OUTPUT, ProbeOutcome, ProbeTarget
from klet.probes.prober import CHECK, probe_exec, probe_grpc
from klet.testing.fuzz.mutators import (
    amplify_behind_first_line,
    amplify_bytes,
    behind_first_line,
    change_bytes,
    change_lines,
    choose_of,
    put_words,
)
from klet.testing.fuzz.target import Flaw, FuzzTarget, Run, piece_size
from klet.wire import cri_v1_pb2 as cri

Read: TypeAlias = Callable[[bytes, int], HttpResponse]
"""Reads an answer that comes in pieces of that size and then ends."""

WORDS: Final = (
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 302 Found",
    b"HTTP/1.0 404",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols",
    b"HTTP/1.1 99999",
    b"ICY 200 OK",
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: 99999999999999999999",
    b"content-length: 5\r\nContent-Length: 6",
    b"Content-Length: -1",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip",
    b"Location: /a",
    b"Location: http://127.0.0.1:1/b?c#d",
    b"Location: //h:99999/",
    b"Location: http://[::1",
    b"Location: https://a b/\x00",
    b"Location: ?q=\xff",
    b"Location: mailto:x",
    b"Location: \xe2\x84\x80",
    b"Location: http://h:0/",
    b"Location: http://h:x/",
    b"Location: %",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"fffffffffffffffff\r\n",
    b"7fffffffffffffff\r\nx",
    b"5;a\r\nhello\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"no colon",
    b" folded",
    b"X: \xff",
)
SEEDS: Final = (
    b"http\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"http\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"http\nHTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:8080/x?y=z\r\n\r\n",
    b"http\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 500 Oops\r\nX: y\r\n\r\nbody until the end",
    b"exec\n\x00output of a command",
    b"exec\n\x01\xff\xfe not UTF-8",
    b"grpc\n\x00\x08\x01",
    b"grpc\n\x00\x08\x02",
    b"grpc\n\x0cno such service",
    b"grpc\n\x0e\xe2\x82\xac unavailable",
)
_ADDRESS: Final = build_address("http", "127.0.0.1", 8080, "/healthz")
_TIMEOUT: Final = timedelta(seconds=5)
_LONGEST_OUTCOME: Final = 12 * 1024


def probe_answers(read: Read | None = None) -> FuzzTarget:
    """Return the target; another reader of HTTP than klet's shows that its faults are found."""
    reader = read or read_answer

    @contextmanager
    def opened() -> Iterator[Run]:
        with asyncio.Runner() as runner:
            # The server lives as long as the loop; a run that needs it starts it.
            servers = _Servers(runner)
            try:
                yield lambda data: check_answer(reader, servers, data)
            finally:
                servers.close()

    return FuzzTarget(
        name="probe-answers",
        summary="answers to probes: HTTP responses, gRPC health over the wire, output of commands",
        seeds=lambda: SEEDS,
        mutate=choose_of(tuple(behind_first_line(step) for step in (change_bytes, change_lines, put_words(WORDS)))),
        amplify=amplify_behind_first_line(amplify_bytes()),
        opened=opened,
    )


def check_answer(read: Read, servers: "_Servers", data: bytes) -> object:
    """Give the answer to the probe that it is for; raises Flaw."""
    kind, _, content = data.partition(b"\n")
    match kind:
        case b"http":
            return _check_http(read, content)
        case b"exec":
            return _check_outcome(servers.run(_probe_command(content)))
        case b"grpc":
            return _check_outcome(servers.ask(content))
        case _:
            return "no such probe"


def read_answer(data: bytes, size: int) -> HttpResponse:
    """Read as a connection hands it over."""
    reader = ResponseReader()
    for start in range(0, len(data), size):
        if (response := reader.feed(data[start : start + size])) is not None:
            return response
    return reader.end()


def _check_http(read: Read, data: bytes) -> object:
    whole = _http_outcome(read, data, max(1, len(data)))
    pieces = _http_outcome(read, data, piece_size(data))
    if not _agree(whole, pieces):
        raise Flaw("reads another answer when it comes in pieces")
    if isinstance(whole, str):
        if len(whole) > _LONGEST_OUTCOME:
            raise Flaw("quotes too much of an answer")
        return whole[:40]
    if len(whole.body) > MAX_BODY or len(read_output(whole.body)) > MAX_BODY:
        raise Flaw("keeps too much of a body")
    if whole.location:
        _check_redirection(whole.location)
    return whole.status // 100, bool(whole.location), bool(whole.body)


def _agree(whole: HttpResponse | str, pieces: HttpResponse | str) -> bool:
    """Compare: a server that sends too much is cut off where its pieces end; what counts is the same, or an error."""
    if isinstance(whole, HttpResponse) and isinstance(pieces, HttpResponse):
        return whole == pieces
    return isinstance(whole, str) == isinstance(pieces, str)


def _http_outcome(read: Read, data: bytes, size: int) -> HttpResponse | str:
    try:
        return read(data, size)
    except ResponseError as error:
        return str(error)


def _check_redirection(location: str) -> None:
    """Check what the client does with a redirect: only one that stays on the same host is followed."""
    following = follow(_ADDRESS, location)
    if following is None or following.host != _ADDRESS.host:
        return
    _check_request(write_request(following, "", ()), following)
    again = follow(following, location)
    if again is not None and again.host == _ADDRESS.host:
        _check_request(write_request(again, "name", (("Accept", "*/*"),), referer=following.url), again)


def _check_request(wire: bytes, address: Address) -> None:
    head, end, behind = wire.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if not end or behind or any(b"\n" in line or b"\r" in line for line in lines):
        raise Flaw("a redirection adds lines to the next request")
    if address.scheme in {"http", "https"} and len(lines[0].split(b" ")) != 3:
        raise Flaw("a redirection adds words to the next request line")
    if any(byte < 32 and byte != 9 for line in lines for byte in line):
        raise Flaw("a redirection adds control characters to the next request")


def _check_outcome(outcome: ProbeOutcome) -> object:
    if len(outcome.output) > MAX_OUTPUT + 256 or len(outcome.error) > MAX_OUTPUT + 256:
        raise Flaw("keeps too much of an answer")
    return outcome.answer, bool(outcome.output), outcome.output.isascii()


async def _probe_command(content: bytes) -> ProbeOutcome:
    return await probe_exec(_Command(content), ExecAction(command=("true",)), _target(timeout=_TIMEOUT))


class _Command:
    """A runtime whose commands all print the same."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def exec_sync(self, request: cri.ExecSyncRequest) -> cri.ExecSyncResponse:  # noqa: ARG002 - the role's argument
        code, rest = self._content[:1], self._content[1:]
        half = len(rest) // 2
        return cri.ExecSyncResponse(exit_code=code[0] if code else 0, stdout=rest[:half], stderr=rest[half:])


class _Servers:
    """A gRPC server on loopback that answers with the bytes it was given, started when it is first needed."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._health = _Health()
        self._port = 0
        self._server: Any = None

    def run(self, probe: Any) -> ProbeOutcome:
        outcome: ProbeOutcome = self._runner.run(probe)
        return outcome

    def ask(self, content: bytes) -> ProbeOutcome:
        return self.run(self._probe(content))

    def close(self) -> None:
        if self._server is not None:
            self._runner.run(self._server.stop(grace=None))

    async def _probe(self, content: bytes) -> ProbeOutcome:
        if self._server is None:
            self._server = aio.server()
            self._server.add_generic_rpc_handlers((self._health.handler(),))
            self._port = self._server.add_insecure_port("127.0.0.1:0")
            await self._server.start()
        self._health.content = content
        return await probe_grpc(GRPCAction(port=self._port, service="s"), _target(timeout=_TIMEOUT))


class _Health:
    """Answers a health check with anything: the first byte is the status, what follows the message or its details."""

    def __init__(self) -> None:
        self.content = b""

    def handler(self) -> "grpc.GenericRpcHandler":
        service = CHECK.path.split("/")[1]
        behaviour: Any = grpc.unary_unary_rpc_method_handler(self._check)
        return grpc.method_handlers_generic_handler(service, {"Check": behaviour})

    async def _check(self, _request: bytes, context: "aio.ServicerContext[Any, Any]") -> bytes:
        status, rest = self.content[:1], self.content[1:]
        code = _CODES[status[0] % len(_CODES)] if status else grpc.StatusCode.OK
        if code is not grpc.StatusCode.OK:
            await context.abort(code, rest.decode("utf-8", "replace")[:4096])
        return rest


_CODES: Final = tuple(grpc.StatusCode)


def _target(*, timeout: timedelta) -> ProbeTarget:
    return ProbeTarget(
        pod=Pod(),
        container=Container(name="c"),
        id=ContainerId("id"),
        probe=Probe(),
        pod_ip="127.0.0.1",
        timeout=timeout,
    )
