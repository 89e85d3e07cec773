"""A connection passes one whole request at a time to the HTTP server, in whatever pieces the bytes arrive."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.aio.clock import SystemClock
from klet.server.connection import HttpConnection, RequestLimits
from klet.server.connection_limits import UnauthenticatedConnections, UnauthenticatedLimits

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


class UpgradeReceiver:
    def __init__(self):
        self.got = b""

    def client_data(self, data):
        self.got += data


def connected(**limits):
    server, unauthenticated = Server(), UnauthenticatedConnections(limits=UnauthenticatedLimits(), clock=SystemClock())
    connection = HttpConnection(
        make_handler=lambda: server,
        limits=RequestLimits(**limits),
        track=lambda transport: unauthenticated.add(None, transport.close),
    )
    connection.connection_made(Wire())
    return connection, server


def pieces(data, cuts):
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def run(data, cuts, plain):
    """Feed the pieces, each request being answered as soon as it is there."""

    async def feed():
        connection, server = connected()
        answered = 0
        expected = [b"".join(plain[: count + 1]) for count in range(len(plain))]
        for piece in pieces(data, cuts):
            connection.data_received(piece)
            while answered < len(expected) and server.fed.startswith(expected[answered]) and connection.upgrade is None:
                answered += 1
                connection.finish_request()
        connection._stop_timer()
        return connection, server

    return asyncio.run(feed())


@given(
    st.lists(st.integers(0, 600), max_size=12),
    st.lists(st.sampled_from([(GET, PLAIN_GET), (PUT, PLAIN_PUT), (CHUNKED, PLAIN_CHUNKED)]), max_size=4),
)
def test_requests_come_whole_with_one_length_and_what_follows_an_upgrade_is_kept(cuts, requests):
    plain = [each[1] for each in requests]
    connection, server = run(b"".join(each[0] for each in requests) + UPGRADE + b"\x80\x03early", cuts, plain)
    assert server.fed == b"".join(plain) + PLAIN_UPGRADE
    assert connection.upgrade.headers == (("Host", "n"), ("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X", "1"))

    async def take_over():
        receiver = UpgradeReceiver()
        assert connection.take_over(receiver) == b"\x80\x03early"
        connection.data_received(b"later")
        assert receiver.got == b"later"

    asyncio.run(take_over())


@given(st.lists(st.integers(0, 200), max_size=8), st.binary(min_size=1, max_size=60))
def test_what_is_no_http_never_reaches_the_server(cuts, nonsense):
    data = b"\x00" + nonsense.replace(b"\n", b"") + b"\r\n\r\n" + nonsense
    connection, server = run(data, cuts, ())
    assert server.fed == b""
    assert connection.transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert connection.transport.is_closed


async def test_a_second_request_waits_for_the_first():
    connection, server = connected()
    connection.data_received(GET + PUT)
    assert server.fed == PLAIN_GET
    connection.finish_request()
    assert server.fed == PLAIN_GET + PLAIN_PUT


@pytest.mark.parametrize("behind", [PUT, b"\x00nonsense\r\n\r\n"])
async def test_what_waits_is_dropped_when_the_client_has_gone(behind):
    connection, server = connected()
    connection.data_received(GET + behind)
    connection.connection_lost(None)
    connection.finish_request()
    assert server.fed == PLAIN_GET
    assert connection.transport.written == b""


@pytest.mark.parametrize("path", [b"/exec/a/b/c", b"/pods"])
async def test_behind_a_refused_upgrade_nothing_is_read(path):
    connection, server = connected()
    request = UPGRADE.replace(b"/exec/a/b/c", path)
    connection.data_received(request + GET)
    connection.finish_request()
    connection.data_received(GET)
    assert server.fed == PLAIN_UPGRADE.replace(b"/exec/a/b/c", path)


async def test_much_that_waits_holds_up_the_client():
    connection, _ = connected()
    connection.data_received(UPGRADE + b"x" * 60_000)
    assert not connection.transport.is_paused
    connection.data_received(b"x" * 60_000)
    assert connection.transport.is_paused
    receiver = UpgradeReceiver()
    assert len(connection.take_over(receiver)) == 120_000
    assert not connection.transport.is_paused


def with_body(*headers, body=b""):
    return UPGRADE.removesuffix(b"\r\n") + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body


async def test_a_client_that_asks_whether_to_send_its_body_may():
    connection, server = connected()
    connection.data_received(with_body(b"Content-Length: 4", b"Expect: 100-continue"))
    assert (server.fed, connection.transport.written) == (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    connection.data_received(b"bo")
    connection.data_received(b"dy")
    assert connection.upgrade_body == b"body"
    assert connection.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(with_body(b"Transfer-Encoding: chunked", body=b"zz\r\n"), 400, id="a chunk without a length"),
        pytest.param(with_body(b"Content-Length: 70000", body=b"x" * 66_000), 413, id="more than any client sends"),
        pytest.param(with_body(b"Content-Length: 1", b"Content-Length: 2", body=b"xx"), 400, id="two lengths"),
    ],
)
async def test_a_body_that_cannot_be_taken_is_refused_at_once(request_bytes, status):
    connection, server = connected()
    connection.data_received(request_bytes + GET)
    assert server.fed == b""
    assert connection.transport.written.startswith(f"HTTP/1.1 {status} ".encode())
    assert connection.transport.is_closed


async def test_the_time_for_a_request_begins_with_the_connection():
    connection, _ = connected(request_time=timedelta(0))
    closed = asyncio.get_running_loop().create_future()
    connection.transport.close = lambda: closed.set_result(None)
    await asyncio.wait_for(closed, 10)
    assert connection.transport.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


async def test_a_connection_that_is_retired_ends_with_the_request_in_hand():
    connection, _ = connected()
    connection.data_received(GET)
    connection.retire()
    assert (connection.transport.is_closed, connection.is_retired) == (False, True)
    idle, _ = connected()
    idle.retire()
    assert idle.transport.is_closed


async def test_an_unauthenticated_client_that_does_not_read_its_responses_is_closed():
    """Answers that nobody reads stay in memory, as long as the client likes."""
    unauthenticated = UnauthenticatedConnections(limits=UnauthenticatedLimits(bytes_kept=1000), clock=SystemClock())
    connections = []
    for unsent in (600, 700):
        connection = HttpConnection(
            make_handler=Server,
            limits=RequestLimits(),
            track=lambda transport: unauthenticated.add(None, transport.close),
        )
        connection.connection_made(Wire())
        connection.data_received(GET)
        connection.transport.unsent = unsent
        connection.pause_writing()
        connections.append(connection)
    assert [connection.transport.is_closed for connection in connections] == [False, True]
    connections[0].transport.unsent = 0
    connections[0].resume_writing()
    connections[0].data_received(GET)
    assert not connections[0].transport.is_closed
