"""Unauthenticated connections: how many there may be, what they may hold, and in which order they are served."""

import asyncio
from datetime import timedelta

import pytest

from klet.server.connection_limits import ConnectionStage, UnauthenticatedConnections, UnauthenticatedLimits
from klet.testing.clock import ManualClock

SMALL = UnauthenticatedLimits(connections=3, sessions=2, bytes_kept=1000)


class Connections:
    """The connections of a listener, and which of them were closed."""

    def __init__(self, limits=SMALL):
        self.clock = ManualClock()
        self.unauthenticated = UnauthenticatedConnections(limits=limits, clock=self.clock)
        self.closed = []

    def connect(self, name, address="10.0.0.1"):
        connection = self.unauthenticated.add((address, 1), lambda: self.closed.append(name))
        connection.name = name
        return connection


def test_beyond_the_limit_the_connection_that_was_inactive_for_longest_is_closed():
    listener = Connections()
    first, *_ = (listener.connect(name) for name in ("a", "b", "c"))
    first.set_bytes_kept(10)
    listener.connect("d")
    assert listener.closed == ["b"]
    assert len(listener.unauthenticated) == 3


def test_a_flood_from_one_address_closes_its_own_connections():
    listener = Connections()
    listener.connect("api server", "10.0.0.9")
    for number in range(20):
        listener.connect(f"flood {number}")
    assert len(listener.closed) == 18
    assert "api server" not in listener.closed


@pytest.mark.parametrize(
    ("other", "is_same"),
    [("2001:db8:1:2::ffff", True), ("2001:db8:1:3::1", False), ("::ffff:10.0.0.1", False)],
)
def test_the_addresses_of_one_ipv6_network_are_one_client(other, is_same):
    listener = Connections()
    listener.connect("a", "2001:db8:1:2::1%eth0")
    listener.connect("b", "10.0.0.1")
    listener.connect("c", "10.0.0.1")
    listener.connect("d", other)
    assert listener.closed == (["a"] if is_same else ["b"])


def test_a_client_that_waits_for_the_agent_is_not_inactive():
    async def scenario():
        listener = Connections()
        waiting = listener.connect("a")
        waiting.schedule(lambda: None)
        for name in ("b", "c", "d"):
            listener.connect(name)
        assert listener.closed == ["b"]

    asyncio.run(scenario())


def test_sessions_are_counted_separately():
    listener = Connections()
    connections = [listener.connect(name) for name in ("a", "b", "c")]
    for connection in connections:
        connection.set_stage(ConnectionStage.SESSION)
    assert listener.closed == ["a"]
    listener.connect("d")
    assert listener.closed == ["a"]


def test_beyond_the_limit_of_bytes_the_connection_with_the_most_is_closed():
    listener = Connections()
    first, second = listener.connect("a"), listener.connect("b")
    first.set_bytes_kept(900)
    second.set_bytes_kept(90)
    second.set_bytes_kept(110)
    assert listener.closed == ["a"]
    second.set_bytes_kept(1000)
    assert listener.closed == ["a"]


def test_authenticated_connections_and_those_with_a_request_are_not_counted():
    listener = Connections()
    known, served, third = (listener.connect(name) for name in ("known", "served", "third"))
    known.mark_authenticated()
    served.start_request()
    assert len(listener.unauthenticated) == 1
    known.set_bytes_kept(5000)
    for name in ("d", "e", "f"):
        listener.connect(name)
    assert listener.closed == ["third"]
    known.finish_request()
    assert len(listener.unauthenticated) == 3
    served.finish_request()
    assert listener.closed == ["third", "d"]
    served.mark_closed()
    served.finish_request()
    known.mark_closed()
    third.mark_closed()
    assert len(listener.unauthenticated) == 2


def test_responses_that_unauthenticated_clients_do_not_read_are_bounded():
    listener = Connections()
    first, second, known = (listener.connect(name) for name in ("a", "b", "known"))
    known.mark_authenticated()
    for connection in (first, second, known):
        connection.start_request()
    first.set_bytes_kept(600)
    second.set_bytes_kept(300)
    known.set_bytes_kept(5000)
    assert listener.closed == []
    second.set_bytes_kept(500)
    assert listener.closed == ["a"]
    second.finish_request()
    second.start_request()
    second.set_bytes_kept(900)
    assert listener.closed == ["a"]
    second.mark_closed()
    third = listener.connect("c")
    third.start_request()
    third.set_bytes_kept(1000)
    assert listener.closed == ["a"]


def test_the_age_of_a_connection():
    listener = Connections()
    connection = listener.connect("a")
    listener.clock.advance(timedelta(seconds=3))
    assert connection.age == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("stage", "order"),
    [
        pytest.param(ConnectionStage.CONNECTED, [3, "client", 2, 0, 1], id="handshakes: the newest and the oldest"),
        pytest.param(
            ConnectionStage.HANDSHAKE, [3, "client", 2, 0, 1], id="handshakes that continue: the newest and the oldest"
        ),
        pytest.param(ConnectionStage.SESSION, [0, "client", 1, 2, 3], id="requests: in the order of their arrival"),
    ],
)
def test_work_is_done_in_turns_by_address_and_with_pauses(stage, order):
    async def scenario():
        listener, done = Connections(UnauthenticatedLimits()), []
        flood = [listener.connect(number) for number in range(4)]
        client = listener.connect("client", "10.0.0.9")
        for connection in (*flood, client):
            connection.set_stage(stage)

        is_done = asyncio.Event()

        def work(name):
            done.append(name)
            listener.clock.advance(timedelta(milliseconds=2))
            if len(done) == 5:
                is_done.set()

        for connection in (*flood, client):
            connection.schedule(lambda connection=connection: work(connection.name))
        await asyncio.sleep(0)
        assert done[:2] == order[:2]  # a slice is over
        await is_done.wait()
        assert done == order
        assert not any(connection.is_waiting for connection in flood)

    asyncio.run(scenario())


def test_work_that_fails_does_not_stop_the_others():
    async def scenario():
        listener, is_done, errors = Connections(UnauthenticatedLimits()), asyncio.Event(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        listener.connect("a").schedule(lambda: 1 / 0)
        listener.connect("b").schedule(is_done.set)
        await asyncio.wait_for(is_done.wait(), 10)
        assert [type(error) for error in errors] == [ZeroDivisionError]

    asyncio.run(scenario())


def test_handshakes_come_before_requests_and_do_not_starve_them():
    async def scenario():
        listener, done, is_done = Connections(UnauthenticatedLimits()), [], asyncio.Event()

        def work(name):
            done.append(name)
            listener.clock.advance(timedelta(milliseconds=2))
            if len(done) == 12:
                is_done.set()

        connections = [listener.connect(name) for name in "rrrrrrhhhhhh"]
        for connection in connections:
            connection.set_stage(ConnectionStage.SESSION if connection.name == "r" else ConnectionStage.HANDSHAKE)
            connection.schedule(lambda connection=connection: work(connection.name))
        await asyncio.wait_for(is_done.wait(), 10)
        assert "".join(done) == "hhrhhrhhrrrr"

    asyncio.run(scenario())


def test_a_slice_serves_few_requests():
    async def scenario():
        listener, done = Connections(UnauthenticatedLimits()), []
        for number in range(20):
            connection = listener.connect(number)
            connection.set_stage(ConnectionStage.SESSION)
            connection.schedule(lambda number=number: done.append(number))
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3]

    asyncio.run(scenario())
