"""The front between bytes and the HTTP server: one request at a time, whatever pieces they come in."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.server.front import Front, FrontLimits

GET = b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n"
PUT = b"PUT /pods HTTP/1.1\r\nHost: n\r\nContent-Length: 7\r\n\r\nGET / H"
CHUNKED = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
UPGRADE = b"POST /exec/a/b/c HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX: 1\r\n\r\n"
PLAIN_UPGRADE = b"POST /exec/a/b/c HTTP/1.1\r\nHost: n\r\nX: 1\r\n\r\n"


class Server:
    """Takes the place of aiohttp's handler: it keeps what it is fed."""

    def __init__(self):
        self.fed = b""

    def connection_made(self, transport):
        pass

    def connection_lost(self, exc):
        self.lost = exc

    def data_received(self, data):
        self.fed += data


class Wire(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.is_paused = False
        self.written = b""
        self.is_closed = False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def write(self, data):
        self.written += data

    def close(self):
        self.is_closed = True

    def get_extra_info(self, _name, default=None):
        return default


class Taker:
    def __init__(self):
        self.got = b""

    def client_data(self, data):
        self.got += data


def connected():
    server = Server()
    front = Front(make_handler=lambda: server, limits=FrontLimits())
    front.connection_made(Wire())
    return front, server


def pieces(data, cuts):
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def run(data, cuts, requests):
    """Feed the pieces, each request being answered as soon as it is there; the rest goes to whoever takes over."""

    async def feed():
        front, server = connected()
        answered = 0
        expected = [b"".join(requests[: count + 1]) for count in range(len(requests))]
        for piece in pieces(data, cuts):
            front.data_received(piece)
            while answered < len(expected) and server.fed.startswith(expected[answered]) and front.upgrade is None:
                answered += 1
                front.done()
        front._stop_timer()
        return front, server

    return asyncio.run(feed())


@given(st.lists(st.integers(0, 600), max_size=12), st.lists(st.sampled_from([GET, PUT, CHUNKED]), max_size=4))
def test_requests_come_whole_and_in_order_and_what_follows_an_upgrade_is_kept(cuts, requests):
    front, server = run(b"".join(requests) + UPGRADE + b"\x80\x03early", cuts, requests)
    assert server.fed == b"".join(requests) + PLAIN_UPGRADE
    assert front.upgrade.headers == (("Host", "n"), ("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X", "1"))
    taker = Taker()
    assert front.take_over(taker) == b"\x80\x03early"
    front.data_received(b"later")
    assert taker.got == b"later"


@given(st.lists(st.integers(0, 200), max_size=8), st.binary(min_size=1, max_size=60))
def test_what_is_no_http_reaches_the_server_as_it_came(cuts, nonsense):
    data = b"\x00" + nonsense.replace(b"\n", b"") + b"\r\n\r\n" + nonsense
    _, server = run(data, cuts, ())
    assert server.fed == data


async def test_a_second_request_waits_for_the_first():
    front, server = connected()
    front.data_received(GET + PUT)
    assert server.fed == GET
    front.done()
    assert server.fed == GET + PUT


async def test_a_refused_upgrade_is_followed_by_the_next_request():
    front, server = connected()
    front.data_received(UPGRADE + GET)
    assert server.fed == PLAIN_UPGRADE
    front.done()
    assert (server.fed, front.upgrade) == (PLAIN_UPGRADE + GET, None)


async def test_an_upgrade_elsewhere_is_the_servers_affair():
    front, server = connected()
    request = b"GET /pods HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    front.data_received(request)
    assert (server.fed, front.upgrade) == (request, None)


async def test_much_that_waits_holds_up_the_client():
    front, _ = connected()
    front.data_received(UPGRADE + b"x" * 60_000)
    assert not front.transport.is_paused
    front.data_received(b"x" * 60_000)
    assert front.transport.is_paused
    taker = Taker()
    assert len(front.take_over(taker)) == 120_000
    assert not front.transport.is_paused


def with_body(*headers, body=b""):
    return UPGRADE.removesuffix(b"\r\n") + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body


SIZED = with_body(b"Content-Length: 7", body=GET[:7])
EMPTY = with_body(b"Content-Length: 0")
IN_CHUNKS = with_body(b"Transfer-Encoding: chunked", body=b"5\r\nGET /\r\n0\r\n\r\n")


@given(
    st.lists(st.integers(0, 400), max_size=8),
    st.sampled_from([(EMPTY, b""), (SIZED, GET[:7]), (IN_CHUNKS, b"5\r\nGET /\r\n0\r\n\r\n")]),
)
def test_the_body_of_an_upgrade_belongs_to_it_and_what_follows_does_not(cuts, request):
    asked, body = request
    front, server = run(asked + GET, cuts, ())
    assert (server.fed, front.upgrade_body) == (PLAIN_UPGRADE, body)
    front.done()
    assert (server.fed, front.upgrade, front.upgrade_body) == (PLAIN_UPGRADE + GET, None, b"")


async def test_a_client_that_asks_whether_to_send_its_body_may():
    front, server = connected()
    front.data_received(with_body(b"Content-Length: 4", b"Expect: 100-continue"))
    assert (server.fed, front.transport.written) == (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    front.data_received(b"body")
    assert (server.fed, front.upgrade_body) == (PLAIN_UPGRADE, b"body")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(with_body(b"Transfer-Encoding: chunked", body=b"zz\r\n"), 400, id="a chunk without a length"),
        pytest.param(with_body(b"Content-Length: 70000", body=b"x" * 66_000), 413, id="more than any client sends"),
    ],
)
async def test_a_body_that_cannot_be_taken_is_refused_at_once(request_bytes, status):
    front, server = connected()
    front.data_received(request_bytes)
    assert server.fed == b""
    assert front.transport.written.startswith(f"HTTP/1.1 {status} ".encode())
    assert front.transport.is_closed


async def test_a_length_that_contradicts_itself_is_the_servers_affair():
    front, server = connected()
    request = with_body(b"Content-Length: 1", b"Content-Length: 2", body=b"xx")
    front.data_received(request)
    assert (server.fed, front.upgrade) == (request, None)
