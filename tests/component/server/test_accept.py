"""Connections are taken in all at once, and nothing that a client does ends that."""

import asyncio
import errno
import socket

import pytest
import uvloop

from klet.aio.clock import SystemClock
from klet.server.accept import accept_connections

PROMPTLY = 30


class Greeter(asyncio.Protocol):
    """Counts connections, and says hello to each."""

    def __init__(self, seen):
        self.seen = seen

    def connection_made(self, transport):
        self.seen.append(transport)
        transport.write(b"hello")
        transport.close()


class Listener:
    """A socket whose first calls of `accept` fail."""

    def __init__(self, inner, errors):
        self.inner = inner
        self.errors = errors

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def accept(self):
        if self.errors:
            raise self.errors.pop()
        return self.inner.accept()


async def greetings(listener, seen, count):
    port = listener.getsockname()[1]
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    async with asyncio.TaskGroup() as group, asyncio.timeout(PROMPTLY):
        task = group.create_task(accept_connections(listener, lambda: Greeter(seen), clock=SystemClock()))
        said = [await reader.read() for reader, _ in clients]
        task.cancel()
    for _, writer in clients:
        writer.close()
        await writer.wait_closed()
    return said


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0), backlog=512) as taken:
        yield taken


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_all_that_wait_are_taken(listener, run):
    seen = []
    assert run(greetings(listener, seen, 300)) == [b"hello"] * 300
    assert len(seen) == 300


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(errno.EMFILE, "Too many open files"), id="no descriptor left"),
        pytest.param(ConnectionAbortedError(errno.ECONNABORTED, "aborted"), id="a client that has gone"),
    ],
)
def test_an_error_does_not_end_it(listener, error):
    assert asyncio.run(greetings(Listener(listener, [error]), [], 2)) == [b"hello"] * 2
