"""GET requests to addresses on loopback, over sockets that the client watches itself."""

import asyncio
import socket
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from klet.host.http_client import BodyError, HttpClient, HttpError
from klet.model.http_get import HttpGet, build_address, write_request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LOOPBACK = "127.0.0.1"
LONG = timedelta(seconds=20)
RESET = b"\x01\0\0\0\0\0\0\0"  # SO_LINGER of 0 seconds: to close is to reset


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    return request.param


def get_from(port, *, host=LOOPBACK, headers=()):
    address = build_address("http", host, port, "/")
    return HttpGet(address=address, headers=headers, wire=write_request(address, "", headers))


def listen(host=LOOPBACK, *, backlog=16, buffer=0):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    if buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    listener.bind((host, 0))
    listener.listen(backlog)
    listener.setblocking(False)
    return listener


async def accept(listener):
    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    return connection


async def answer(connection, data=OK):
    loop = asyncio.get_running_loop()
    seen = b""
    while not seen.endswith(b"\r\n\r\n"):
        seen += await loop.sock_recv(connection, 65536)
    await loop.sock_sendall(connection, data)
    return seen


def count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def read_all(connection):
    seen = b""
    while data := await asyncio.get_running_loop().sock_recv(connection, 65536):
        seen += data
    return seen


def test_a_request_larger_than_the_buffers_goes_in_pieces(run):
    headers = (("X-Long", "x" * 6_000_000),)

    async def main():
        with listen(buffer=4096) as listener:
            request = get_from(listener.getsockname()[1], headers=headers)
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(HttpClient().get(request, timeout=LONG))
                with await accept(listener) as connection:
                    assert await answer(connection) == request.wire
                    assert (await asked).body == b"ok"

    run(main())


def test_a_connection_that_takes_its_time(run):
    async def main():
        with listen(backlog=0) as listener, socket.socket() as first:
            first.connect(listener.getsockname())  # the only place; the next is let in when the kernel tries again
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(HttpClient().get(get_from(listener.getsockname()[1]), timeout=LONG))
                await asyncio.sleep(0)
                (await accept(listener)).close()
                with await accept(listener) as connection:
                    await answer(connection)
                    assert (await asked).body == b"ok"

    run(main())


def test_an_answer_in_pieces(run):
    async def main():
        with listen() as listener:
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(HttpClient().get(get_from(listener.getsockname()[1]), timeout=LONG))
                with await accept(listener) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await answer(connection, OK[:20])
                    await asyncio.get_running_loop().sock_sendall(connection, OK[20:])
                    assert (await asked).body == b"ok"

    run(main())


def test_an_address_of_the_other_family(run):
    async def main():
        try:
            listener = listen("::1")
        except OSError:
            pytest.skip("no IPv6 loopback: sysctl net.ipv6.conf.lo.disable_ipv6=0, if the kernel knows IPv6")
        with listener:
            request = get_from(listener.getsockname()[1], host="::1")
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(HttpClient().get(request, timeout=LONG))
                with await accept(listener) as connection:
                    await answer(connection)
                    assert (await asked).body == b"ok"

    run(main())


@pytest.mark.parametrize(
    ("sent", "kind", "before"),
    [
        pytest.param(b"", HttpError, 'Get "http://{peer}/": ', id="before the head"),
        pytest.param(OK[:-1], BodyError, "", id="in the body"),
    ],
)
def test_a_connection_that_is_reset(run, sent, kind, before):
    async def main():
        with listen() as listener:
            port = listener.getsockname()[1]

            async def reset():
                with await accept(listener) as connection:
                    name = "{}:{}".format(*connection.getpeername())
                    await answer(connection, sent)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    return name

            async with asyncio.TaskGroup() as group:
                resetting = group.create_task(reset())
                with pytest.raises(kind) as caught:
                    await HttpClient().get(get_from(port), timeout=LONG)
            peer = f"{LOOPBACK}:{port}"
            why = f"read tcp {resetting.result()}->{peer}: read: connection reset by peer"
            assert str(caught.value) == before.format(peer=peer) + why

    run(main())


def test_each_has_its_own_deadline(run):
    async def main():
        order = []
        client = HttpClient()
        with listen() as listener:
            request = get_from(listener.getsockname()[1])

            async def ask(milliseconds):
                with pytest.raises(HttpError, match="exceeded while awaiting headers"):
                    await client.get(request, timeout=timedelta(milliseconds=milliseconds))
                order.append(milliseconds)

            async with asyncio.TaskGroup() as group:
                patient = group.create_task(client.get(request, timeout=None))
                with await accept(listener) as connection:
                    async with asyncio.TaskGroup() as others:
                        for milliseconds in (300, 100, 500, 200):
                            others.create_task(ask(milliseconds))
                    await answer(connection)
                    assert (await patient).body == b"ok"
        assert order == [100, 200, 300, 500]

    run(main())


def test_a_request_that_is_cancelled_leaves_nothing_open(run):
    async def main():
        client = HttpClient()
        with listen() as listener:
            request = get_from(listener.getsockname()[1])

            async def ask_and_leave():
                async with asyncio.TaskGroup() as group:
                    asked = group.create_task(client.get(request, timeout=LONG))
                    with await accept(listener) as connection:
                        asked.cancel()
                        assert await read_all(connection) == request.wire

            await ask_and_leave()
            before = count_descriptors()
            await ask_and_leave()
            assert count_descriptors() == before

    run(main())


def test_a_client_may_be_used_in_one_loop_after_the_other(run):
    client = HttpClient()

    async def main():
        with listen() as listener:
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(client.get(get_from(listener.getsockname()[1]), timeout=LONG))
                with await accept(listener) as connection:
                    await answer(connection)
                    return (await asked).body

    assert [run(main()), run(main())] == [b"ok", b"ok"]
