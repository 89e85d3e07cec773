"""The front between bytes and the HTTP server: one whole request at a time, whatever pieces they come in."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.aio.clock import SystemClock
from klet.server.front import Front, FrontLimits
from klet.server.lobby import Lobby, LobbyLimits

GET = b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n"
PUT = b"PUT /pods HTTP/1.1\r\nHost: n\r\nContent-Length: 7\r\n\r\nGET / H"
CHUNKED = b"POST /x HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"
UPGRADE = b"POST /exec/a/b/c HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX: 1\r\n\r\n"
PLAIN_GET = b"GET /pods HTTP/1.1\r\nHost: n\r\nConnection: keep-alive\r\n\r\n"
PLAIN_PUT = b"PUT /pods HTTP/1.1\r\nHost: n\r\nConnection: keep-alive\r\nContent-Length: 7\r\n\r\nGET / H"
PLAIN_CHUNKED = b"POST /x HTTP/1.1\r\nHost: n\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"
PLAIN_UPGRADE = b"POST /exec/a/b/c HTTP/1.1\r\nHost: n\r\nX: 1\r\nConnection: close\r\n\r\n"


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

    def pause_writing(self):
        pass

    def resume_writing(self):
        pass


class Wire(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.is_paused = False
        self.written = b""
        self.is_closed = False
        self.unsent = 0

    def get_write_buffer_size(self):
        return self.unsent

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


def connected(**limits):
    server, lobby = Server(), Lobby(limits=LobbyLimits(), clock=SystemClock())
    front = Front(
        make_handler=lambda: server,
        limits=FrontLimits(**limits),
        welcome=lambda transport: lobby.welcome(None, transport.close),
    )
    front.connection_made(Wire())
    return front, server


def pieces(data, cuts):
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def run(data, cuts, plain):
    """Feed the pieces, each request being answered as soon as it is there."""

    async def feed():
        front, server = connected()
        answered = 0
        expected = [b"".join(plain[: count + 1]) for count in range(len(plain))]
        for piece in pieces(data, cuts):
            front.data_received(piece)
            while answered < len(expected) and server.fed.startswith(expected[answered]) and front.upgrade is None:
                answered += 1
                front.done()
        front._stop_timer()
        return front, server

    return asyncio.run(feed())


@given(
    st.lists(st.integers(0, 600), max_size=12),
    st.lists(st.sampled_from([(GET, PLAIN_GET), (PUT, PLAIN_PUT), (CHUNKED, PLAIN_CHUNKED)]), max_size=4),
)
def test_requests_come_whole_with_one_length_and_what_follows_an_upgrade_is_kept(cuts, requests):
    plain = [each[1] for each in requests]
    front, server = run(b"".join(each[0] for each in requests) + UPGRADE + b"\x80\x03early", cuts, plain)
    assert server.fed == b"".join(plain) + PLAIN_UPGRADE
    assert front.upgrade.headers == (("Host", "n"), ("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X", "1"))

    async def take_over():
        taker = Taker()
        assert front.take_over(taker) == b"\x80\x03early"
        front.data_received(b"later")
        assert taker.got == b"later"

    asyncio.run(take_over())


@given(st.lists(st.integers(0, 200), max_size=8), st.binary(min_size=1, max_size=60))
def test_what_is_no_http_never_reaches_the_server(cuts, nonsense):
    data = b"\x00" + nonsense.replace(b"\n", b"") + b"\r\n\r\n" + nonsense
    front, server = run(data, cuts, ())
    assert server.fed == b""
    assert front.transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert front.transport.is_closed


async def test_a_second_request_waits_for_the_first():
    front, server = connected()
    front.data_received(GET + PUT)
    assert server.fed == PLAIN_GET
    front.done()
    assert server.fed == PLAIN_GET + PLAIN_PUT


@pytest.mark.parametrize("path", [b"/exec/a/b/c", b"/pods"])
async def test_behind_a_refused_upgrade_nothing_is_read(path):
    front, server = connected()
    request = UPGRADE.replace(b"/exec/a/b/c", path)
    front.data_received(request + GET)
    front.done()
    front.data_received(GET)
    assert server.fed == PLAIN_UPGRADE.replace(b"/exec/a/b/c", path)


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


async def test_a_client_that_asks_whether_to_send_its_body_may():
    front, server = connected()
    front.data_received(with_body(b"Content-Length: 4", b"Expect: 100-continue"))
    assert (server.fed, front.transport.written) == (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    front.data_received(b"bo")
    front.data_received(b"dy")
    assert front.upgrade_body == b"body"
    assert front.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(with_body(b"Transfer-Encoding: chunked", body=b"zz\r\n"), 400, id="a chunk without a length"),
        pytest.param(with_body(b"Content-Length: 70000", body=b"x" * 66_000), 413, id="more than any client sends"),
        pytest.param(with_body(b"Content-Length: 1", b"Content-Length: 2", body=b"xx"), 400, id="two lengths"),
    ],
)
async def test_a_body_that_cannot_be_taken_is_refused_at_once(request_bytes, status):
    front, server = connected()
    front.data_received(request_bytes + GET)
    assert server.fed == b""
    assert front.transport.written.startswith(f"HTTP/1.1 {status} ".encode())
    assert front.transport.is_closed


async def test_the_time_for_a_request_begins_with_the_connection():
    front, _ = connected(request_time=timedelta(0))
    closed = asyncio.get_running_loop().create_future()
    front.transport.close = lambda: closed.set_result(None)
    await asyncio.wait_for(closed, 10)
    assert front.transport.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


async def test_a_connection_that_is_retired_ends_with_the_request_in_hand():
    front, _ = connected()
    front.data_received(GET)
    front.retire()
    assert (front.transport.is_closed, front.is_retired) == (False, True)
    idle, _ = connected()
    idle.retire()
    assert idle.transport.is_closed


async def test_a_stranger_that_does_not_take_its_answers_is_pushed_out():
    """Answers that nobody reads stay in memory, as long as the client likes."""
    lobby = Lobby(limits=LobbyLimits(bytes_kept=1000), clock=SystemClock())
    fronts = []
    for unsent in (600, 700):
        front = Front(
            make_handler=Server, limits=FrontLimits(), welcome=lambda transport: lobby.welcome(None, transport.close)
        )
        front.connection_made(Wire())
        front.data_received(GET)
        front.transport.unsent = unsent
        front.pause_writing()
        fronts.append(front)
    assert [front.transport.is_closed for front in fronts] == [False, True]
    fronts[0].transport.unsent = 0
    fronts[0].resume_writing()
    fronts[0].data_received(GET)
    assert not fronts[0].transport.is_closed
