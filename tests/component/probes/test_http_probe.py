"""HTTP probes against servers on loopback."""

import asyncio
import gzip
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerPort
from klet.api.handlers import HTTPGetAction, HTTPHeader, Probe
from klet.host.http_client import HttpClient, HttpError, PlainHttpError
from klet.model.http_get import HttpGet, build_address, write_request
from klet.probes.handler import MAX_OUTPUT, ProbeAnswer, ProbeOutcome

SHORT = timedelta(milliseconds=100)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
DEADLINE = "context deadline exceeded"
TOO_MUCH_HEAD = "server response headers exceeded 65536 bytes; aborted"
BOMB = gzip.compress(bytes(20_000_000), mtime=0)


def status(code, *headers, body=b""):
    lines = [f"HTTP/1.1 {code} X", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def http(port, **given):
    return Probe(http_get=HTTPGetAction(port=port, **given))


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(OK, ProbeOutcome(ProbeAnswer.SUCCESS, "ok"), id="200"),
        pytest.param(status(299), ProbeOutcome(ProbeAnswer.SUCCESS), id="299"),
        pytest.param(
            status(304),
            ProbeOutcome(ProbeAnswer.WARNING, "Probe terminated redirects, Response body: "),
            id="304 is a warning",
        ),
        pytest.param(
            status(302, "Location: http://elsewhere.invalid/", body=b"moved"),
            ProbeOutcome(ProbeAnswer.WARNING, "Probe terminated redirects, Response body: moved"),
            id="a redirection to another host is not followed",
        ),
        pytest.param(
            status(302, body=b"?"),
            ProbeOutcome(ProbeAnswer.WARNING, "Probe terminated redirects, Response body: ?"),
            id="a redirection to nowhere",
        ),
        pytest.param(
            status(400, body=b"secret"),
            ProbeOutcome(ProbeAnswer.FAILURE, "HTTP probe failed with statuscode: 400"),
            id="400",
        ),
        pytest.param(
            status(500), ProbeOutcome(ProbeAnswer.FAILURE, "HTTP probe failed with statuscode: 500"), id="500"
        ),
        pytest.param(
            status(101), ProbeOutcome(ProbeAnswer.FAILURE, "HTTP probe failed with statuscode: 101"), id="101"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20_000,
            ProbeOutcome(ProbeAnswer.SUCCESS, "x" * MAX_OUTPUT),
            id="a long body",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            ProbeOutcome(ProbeAnswer.FAILURE, error="unexpected EOF"),
            id="half a body is an error",
        ),
    ],
)
async def test_answers(serve, prober, target, reply, want):
    async with serve(reply) as (port, _):
        assert await prober.prepare(target(http(port)))() == want


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        pytest.param(
            b"SSH-2.0-x\r\n\r\n",
            'net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-x"',
            id="another protocol",
        ),
        pytest.param(b"", "EOF", id="nothing"),
    ],
)
async def test_no_answer(serve, prober, target, reply, why):
    async with serve(reply) as (port, _):
        outcome = await prober.prepare(target(http(port, path="/x")))()
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, f'Get "http://127.0.0.1:{port}/x": {why}')


async def test_a_refused_connection(prober, target, closed_port):
    outcome = await prober.prepare(target(http(closed_port)))()
    address = f"127.0.0.1:{closed_port}"
    assert outcome.output == f'Get "http://{address}": dial tcp {address}: connect: connection refused'


async def test_the_timeout_covers_connecting(prober, target, full_backlog):
    outcome = await prober.prepare(target(http(full_backlog), timeout=SHORT))()
    why = f"{DEADLINE} (Client.Timeout exceeded while awaiting headers)"
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, f'Get "http://127.0.0.1:{full_backlog}": {why}')


async def test_the_timeout_covers_waiting(serve, prober, target):
    async with serve(b"", holds=True) as (port, _):
        outcome = await prober.prepare(target(http(port), timeout=SHORT))()
    why = f"{DEADLINE} (Client.Timeout exceeded while awaiting headers)"
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, f'Get "http://127.0.0.1:{port}": {why}')


async def test_a_body_that_does_not_come_is_asked_for_three_times(serve, prober, target):
    async with serve(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", holds=True) as (port, seen):
        outcome = await prober.prepare(target(http(port), timeout=SHORT))()
    why = f"{DEADLINE} (Client.Timeout or context cancellation while reading body)"
    assert (outcome, len(seen)) == (ProbeOutcome(ProbeAnswer.FAILURE, error=why), 3)


async def test_an_answer_with_a_length_needs_no_end_of_the_connection(serve, prober, target):
    async with serve(OK, holds=True) as (port, seen):
        assert await prober.prepare(target(http(port)))() == ProbeOutcome(ProbeAnswer.SUCCESS, "ok")
    assert len(seen) == 1


async def test_a_server_that_resets_the_connection(prober, target):
    class Reset(asyncio.Protocol):
        def connection_made(self, transport):
            transport.get_extra_info("socket").setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER 0: close resets
            transport.abort()

    server = await asyncio.get_running_loop().create_server(Reset, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outcome = await prober.prepare(target(http(port)))()
    server.close()
    assert outcome.answer is ProbeAnswer.FAILURE
    assert outcome.output.startswith(f'Get "http://127.0.0.1:{port}": ')
    assert outcome.output.endswith((": connection reset by peer", "EOF"))


async def test_what_is_sent(serve, prober, target):
    headers = [("x-b", "2"), ("X-B", "1"), ("Host", "shop.example"), ("A", " v ")]
    probe = {"path": "health?deep=1", "http_headers": tuple(HTTPHeader(name=n, value=v) for n, v in headers)}
    async with serve(OK) as (port, seen):
        await prober.prepare(target(http(port, **probe)))()
        await prober.prepare(target(http(port)))()
    assert seen[0].decode() == (
        "GET /health?deep=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: kube-probe/1.35\r\n"
        "A: v\r\nAccept: */*\r\nX-B: 2\r\nX-B: 1\r\nConnection: close\r\n\r\n"
    )
    assert seen[1].decode() == (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: kube-probe/1.35\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n"
    )


async def test_headers_can_be_left_out(serve, prober, target):
    none = (HTTPHeader(name="User-Agent", value=""), HTTPHeader(name="Accept", value=""))
    async with serve(OK) as (port, seen):
        await prober.prepare(target(http(port, http_headers=none)))()
    assert seen[0].decode() == f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        pytest.param("X-A", "a\r\nX-B: c", 'net/http: invalid header field value for "X-A"', id="a value with a line"),
        pytest.param("X A", "a", 'net/http: invalid header field name "X A"', id="a name with a blank"),
    ],
)
async def test_headers_that_cannot_be_sent(prober, target, name, value, why):
    outcome = await prober.prepare(target(http(80, http_headers=(HTTPHeader(name=name, value=value),))))()
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, f'Get "http://127.0.0.1:80": {why}')


async def test_ports_by_name(serve, prober, target):
    async with serve(OK) as (port, _):
        made = target(Probe())
        container = replace(made.container, ports=(ContainerPort(name="web", container_port=port),))
        assert (await prober.prepare(target(http("web"), container=container))()).answer is ProbeAnswer.SUCCESS
        assert (await prober.prepare(target(http(str(port))))()).answer is ProbeAnswer.SUCCESS
    assert await prober.prepare(target(http("db")))() == ProbeOutcome(
        ProbeAnswer.UNKNOWN, error='strconv.Atoi: parsing "db": invalid syntax'
    )
    assert await prober.prepare(target(http(0)))() == ProbeOutcome(ProbeAnswer.UNKNOWN, error="invalid port number: 0")


class Redirects:
    """Sends a request on to the next of its locations; then 200."""

    def __init__(self, *locations):
        self.locations = list(locations)

    def __call__(self, _request):
        if not self.locations:
            return OK
        return status(302, f"Location: {self.locations.pop(0)}")


def hosts(seen):
    return [line for request in seen for line in request.decode().split("\r\n") if line.startswith("Host:")]


async def test_a_relative_redirection_keeps_the_host_header(serve, prober, target):
    named = (HTTPHeader(name="Host", value="shop.example"),)
    async with serve(Redirects("/one", "two?x")) as (port, seen):
        outcome = await prober.prepare(target(http(port, path="/", http_headers=named)))()
    assert outcome == ProbeOutcome(ProbeAnswer.SUCCESS, "ok")
    assert [request.split(b" ")[1] for request in seen] == [b"/", b"/one", b"/two?x"]
    assert hosts(seen) == ["Host: shop.example"] * 3
    assert f"Referer: http://127.0.0.1:{port}/one\r\n".encode() in seen[2]


async def test_an_absolute_redirection_drops_the_host_header(serve, prober, target):
    named = (HTTPHeader(name="Host", value="shop.example"),)
    redirects = Redirects()
    async with serve(redirects) as (port, seen):
        redirects.locations = [f"http://127.0.0.1:{port}/one", "/two"]
        outcome = await prober.prepare(target(http(port, http_headers=named)))()
    assert outcome.answer is ProbeAnswer.SUCCESS
    assert hosts(seen) == ["Host: shop.example", f"Host: 127.0.0.1:{port}", f"Host: 127.0.0.1:{port}"]


async def test_redirections_may_change_the_port(serve, prober, target):
    async with serve(OK) as (other, _), serve(Redirects(f"http://127.0.0.1:{other}/")) as (port, _):
        assert (await prober.prepare(target(http(port)))()).answer is ProbeAnswer.SUCCESS


async def test_redirections_without_end(serve, prober, target):
    async with serve(status(302, "Location: /again")) as (port, seen):
        outcome = await prober.prepare(target(http(port)))()
    assert (outcome.output, len(seen)) == ('Get "/again": stopped after 10 redirects', 10)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        pytest.param("ftp://127.0.0.1/x", 'Get "ftp://127.0.0.1/x": unsupported protocol scheme "ftp"', id="scheme"),
        pytest.param("http://127.0.0.1:x/", 'failed to parse Location header "http://127.0.0.1:x/"', id="nonsense"),
    ],
)
async def test_redirections_that_cannot_be_followed(serve, prober, target, location, why):
    async with serve(status(302, f"Location: {location}")) as (port, _):
        outcome = await prober.prepare(target(http(port)))()
    assert outcome.answer is ProbeAnswer.FAILURE
    assert why in outcome.output


@pytest.mark.parametrize(
    "location",
    [
        pytest.param("http://elsewhere.invalid/x", id="another name"),
        pytest.param("//elsewhere.invalid/x", id="without a scheme"),
        pytest.param("http://127.0.0.1@elsewhere.invalid/", id="our host as a user"),
        pytest.param("http://127.0.0.1:80@elsewhere.invalid/", id="our host as a user with a password"),
        pytest.param("http://127.0.0.1.elsewhere.invalid/", id="our host as a part of the name"),
        pytest.param("http://2130706433/", id="the same address written otherwise"),
        pytest.param("http://[::ffff:127.0.0.1]/", id="the same address in another family"),
        pytest.param("/\t/elsewhere.invalid/", id="a name behind a tab"),
        pytest.param("http:///x", id="no host"),
        pytest.param("http://:80/x", id="a port alone"),
        pytest.param("file:///etc/passwd", id="a file"),
        pytest.param("http://169.254.169.254/latest/meta-data/", id="the metadata of a cloud"),
    ],
)
async def test_a_redirection_to_another_host_is_not_followed(serve, prober, target, location):
    async with serve(status(302, f"Location: {location}", body=b"moved")) as (port, seen):
        outcome = await prober.prepare(target(http(port)))()
    assert outcome == ProbeOutcome(ProbeAnswer.WARNING, "Probe terminated redirects, Response body: moved")
    assert len(seen) == 1


async def test_a_redirection_to_another_host_after_some_to_the_same(serve, prober, target):
    async with serve(Redirects("/one", "http://elsewhere.invalid/")) as (port, seen):
        outcome = await prober.prepare(target(http(port)))()
    assert (outcome.answer, len(seen)) == (ProbeAnswer.WARNING, 2)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 1_000_000, TOO_MUCH_HEAD, id="an endless head"),
        pytest.param(b"HTTP/1.1 102 Wait\r\n\r\n" * 50_000, TOO_MUCH_HEAD, id="endless interim responses"),
        pytest.param(b"x" * 1_000_000, TOO_MUCH_HEAD, id="an endless line"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000, "x" * MAX_OUTPUT, id="an endless body"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200_000,
            "x" * MAX_OUTPUT,
            id="endless chunks",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + BOMB + b"\0" * MAX_OUTPUT,
            (BOMB + b"\0" * MAX_OUTPUT)[:MAX_OUTPUT].decode("utf-8", "replace"),
            id="a compressed bomb stays compressed",
        ),
    ],
)
async def test_what_has_no_end_is_cut(serve, prober, target, server_tls, reply, want, is_encrypted):
    async with serve(reply, holds=True, tls=server_tls if is_encrypted else None) as (port, _):
        probe = http(port, scheme="HTTPS" if is_encrypted else "HTTP")
        outcome = await prober.prepare(target(probe, timeout=timedelta(seconds=10)))()
    assert outcome.output.endswith(want)
    assert len(outcome.output) <= MAX_OUTPUT


async def test_a_location_is_not_quoted_whole(serve, prober, target):
    async with serve(status(302, "Location: /" + "x" * 60_000)) as (port, _):
        outcome = await prober.prepare(target(http(port)))()
    assert outcome.output.endswith("stopped after 10 redirects")
    assert len(outcome.output) <= MAX_OUTPUT


async def test_certificates_are_not_verified(serve, prober, target, server_tls):
    async with serve(OK, tls=server_tls) as (port, seen):
        outcome = await prober.prepare(target(http(port, scheme="HTTPS")))()
    assert (outcome, len(seen)) == (ProbeOutcome(ProbeAnswer.SUCCESS, "ok"), 1)


def plain_get(port):
    address = build_address("https", "127.0.0.1", port, "/")
    return HttpGet(address=address, wire=write_request(address, "", ()))


async def test_https_to_a_plain_server(serve, target):
    async with serve(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (port, _):
        request = plain_get(port)
        with pytest.raises(PlainHttpError) as caught:
            await HttpClient().get(request, timeout=timedelta(seconds=5))
    why = "http: server gave HTTP response to HTTPS client"
    assert str(caught.value) == f'Get "https://127.0.0.1:{port}/": {why}'


async def test_https_to_a_server_that_hangs_up(serve):
    async with serve(b"") as (port, _):
        request = plain_get(port)
        with pytest.raises(HttpError) as caught:
            await HttpClient().get(request, timeout=timedelta(seconds=5))
    assert str(caught.value) == f'Get "https://127.0.0.1:{port}/": EOF'


async def test_plain_http_to_a_tls_server(serve, prober, target, server_tls):
    async with serve(OK, tls=server_tls) as (port, _):
        outcome = await prober.prepare(target(http(port)))()
    assert outcome.answer is ProbeAnswer.FAILURE
