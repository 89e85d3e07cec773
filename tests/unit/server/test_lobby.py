"""Strangers at the door: how many, how much, and in which order they are dealt with."""

import asyncio
from datetime import timedelta

import pytest

from klet.server.lobby import ConnectionStage, Lobby, LobbyLimits
from klet.testing.clock import ManualClock

SMALL = LobbyLimits(connections=3, sessions=2, bytes_kept=1000)


class Door:
    """A lobby, and who was sent away."""

    def __init__(self, limits=SMALL):
        self.clock = ManualClock()
        self.lobby = Lobby(limits=limits, clock=self.clock)
        self.closed = []

    def come(self, name, address="10.0.0.1"):
        visit = self.lobby.welcome((address, 1), lambda: self.closed.append(name))
        visit.name = name
        return visit


def test_the_one_too_many_is_the_one_that_was_silent_for_longest():
    door = Door()
    first, *_ = (door.come(name) for name in ("a", "b", "c"))
    first.keep(10)
    door.come("d")
    assert door.closed == ["b"]
    assert len(door.lobby) == 3


def test_a_flood_from_one_address_pushes_out_itself():
    door = Door()
    door.come("api server", "10.0.0.9")
    for number in range(20):
        door.come(f"flood {number}")
    assert len(door.closed) == 18
    assert "api server" not in door.closed


@pytest.mark.parametrize(
    ("other", "is_same"),
    [("2001:db8:1:2::ffff", True), ("2001:db8:1:3::1", False), ("::ffff:10.0.0.1", False)],
)
def test_the_addresses_of_one_ipv6_network_are_one_client(other, is_same):
    door = Door()
    door.come("a", "2001:db8:1:2::1%eth0")
    door.come("b", "10.0.0.1")
    door.come("c", "10.0.0.1")
    door.come("d", other)
    assert door.closed == (["a"] if is_same else ["b"])


def test_who_waits_for_this_side_is_not_silent():
    async def scenario():
        door = Door()
        waiting = door.come("a")
        waiting.soon(lambda: None)
        for name in ("b", "c", "d"):
            door.come(name)
        assert door.closed == ["b"]

    asyncio.run(scenario())


def test_sessions_are_counted_apart():
    door = Door()
    visits = [door.come(name) for name in ("a", "b", "c")]
    for visit in visits:
        visit.reach(ConnectionStage.SESSION)
    assert door.closed == ["a"]
    door.come("d")
    assert door.closed == ["a"]


def test_who_keeps_most_goes():
    door = Door()
    first, second = door.come("a"), door.come("b")
    first.keep(900)
    second.keep(90)
    second.keep(110)
    assert door.closed == ["a"]
    second.keep(1000)
    assert door.closed == ["a"]


def test_who_is_known_or_served_is_not_in_the_lobby():
    door = Door()
    known, served, third = (door.come(name) for name in ("known", "served", "third"))
    known.vouch()
    served.serve()
    assert len(door.lobby) == 1
    known.keep(5000)
    for name in ("d", "e", "f"):
        door.come(name)
    assert door.closed == ["third"]
    known.rest()
    assert len(door.lobby) == 3
    served.rest()
    assert door.closed == ["third", "d"]
    served.end()
    served.rest()
    known.end()
    third.end()
    assert len(door.lobby) == 2


def test_answers_that_strangers_do_not_read_are_bounded():
    door = Door()
    first, second, known = (door.come(name) for name in ("a", "b", "known"))
    known.vouch()
    for visit in (first, second, known):
        visit.serve()
    first.keep(600)
    second.keep(300)
    known.keep(5000)
    assert door.closed == []
    second.keep(500)
    assert door.closed == ["a"]
    second.rest()
    second.serve()
    second.keep(900)
    assert door.closed == ["a"]
    second.end()
    third = door.come("c")
    third.serve()
    third.keep(1000)
    assert door.closed == ["a"]


def test_the_age_of_a_visit():
    door = Door()
    visit = door.come("a")
    door.clock.advance(timedelta(seconds=3))
    assert visit.age == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("stage", "order"),
    [
        pytest.param(ConnectionStage.CONNECTED, [3, "client", 2, 0, 1], id="handshakes: the newest and the oldest"),
        pytest.param(ConnectionStage.HANDSHAKE, [3, "client", 2, 0, 1], id="handshakes that go on: the same"),
        pytest.param(ConnectionStage.SESSION, [0, "client", 1, 2, 3], id="requests: as they came"),
    ],
)
def test_work_is_done_in_turns_by_address_and_with_pauses(stage, order):
    async def scenario():
        door, done = Door(LobbyLimits()), []
        flood = [door.come(number) for number in range(4)]
        client = door.come("client", "10.0.0.9")
        for visit in (*flood, client):
            visit.reach(stage)

        is_done = asyncio.Event()

        def work(name):
            done.append(name)
            door.clock.advance(timedelta(milliseconds=2))
            if len(done) == 5:
                is_done.set()

        for visit in (*flood, client):
            visit.soon(lambda visit=visit: work(visit.name))
        await asyncio.sleep(0)
        assert done[:2] == order[:2]  # a slice is over
        await is_done.wait()
        assert done == order
        assert not any(visit.is_waiting for visit in flood)

    asyncio.run(scenario())


def test_work_that_fails_stops_nobody_else():
    async def scenario():
        door, is_done, errors = Door(LobbyLimits()), asyncio.Event(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        door.come("a").soon(lambda: 1 / 0)
        door.come("b").soon(is_done.set)
        await asyncio.wait_for(is_done.wait(), 10)
        assert [type(error) for error in errors] == [ZeroDivisionError]

    asyncio.run(scenario())


def test_handshakes_come_before_requests_and_do_not_starve_them():
    async def scenario():
        door, done, is_done = Door(LobbyLimits()), [], asyncio.Event()

        def work(name):
            done.append(name)
            door.clock.advance(timedelta(milliseconds=2))
            if len(done) == 12:
                is_done.set()

        visits = [door.come(name) for name in "rrrrrrhhhhhh"]
        for visit in visits:
            visit.reach(ConnectionStage.SESSION if visit.name == "r" else ConnectionStage.HANDSHAKE)
            visit.soon(lambda visit=visit: work(visit.name))
        await asyncio.wait_for(is_done.wait(), 10)
        assert "".join(done) == "hhrhhrhhrrrr"

    asyncio.run(scenario())


def test_a_slice_serves_few_requests():
    async def scenario():
        door, done = Door(LobbyLimits()), []
        for number in range(20):
            visit = door.come(number)
            visit.reach(ConnectionStage.SESSION)
            visit.soon(lambda number=number: done.append(number))
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3]

    asyncio.run(scenario())
