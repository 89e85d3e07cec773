import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from klet.certs.board import CertificateBoard
from klet.certs.child.loading import describe
from klet.certs.errors import IdentityLost
from klet.certs.followers import IdentityWatch, ServedPair
from klet.certs.messages import Describe
from klet.certs.pairs import CertificatePair
from klet.certs.rotation_plan import hold
from klet.errors import KletError
from klet.journal.memory import MemoryJournal
from klet.testing.clock import START as NOW
from klet.testing.clock import SteppingClock

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def put(board, pair, name):
    """A pair in force, without its files."""
    file = Path(name)
    facts = describe(Describe(certificate=pair.certificate))
    made = CertificatePair(certificate_file=file, key_file=file, certificate=pair.certificate)
    board.put(made, hold(facts, fraction=0.5))


class Transports:
    def __init__(self):
        self.refreshed = 0

    async def refresh(self):
        self.refreshed += 1


@pytest.fixture
def board():
    return CertificateBoard()


@pytest.fixture
def transports():
    return Transports()


@pytest.fixture
def journal(clock):
    return MemoryJournal(clock=clock)


@pytest.fixture
def watch(board, transports, journal, clock):
    return IdentityWatch(board=board, refresh=transports.refresh, recorder=journal, clock=clock)


async def test_connections_are_reopened_with_each_new_certificate_only(watch, board, transports, clock, new_pair):
    put(board, new_pair(), "first")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        await clock.run(MINUTE)
        assert transports.refreshed == 0
        put(board, new_pair(), "second")
        await clock.run(10 * SECOND)
        assert transports.refreshed == 1
        await clock.run(MINUTE)
        assert transports.refreshed == 1
        task.cancel()


async def test_the_first_certificate_is_noticed_within_a_second(watch, board, transports, clock, new_pair):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        await clock.run(10 * SECOND)
        put(board, new_pair(), "first")
        await clock.run(SECOND)
        assert transports.refreshed == 1
        task.cancel()


async def test_an_agent_without_a_certificate_ends_if_the_server_is_well(watch, board, clock):
    board.is_server_well = True
    run = asyncio.ensure_future(watch.run())
    await clock.run(5 * MINUTE)
    assert not run.done()
    await clock.run(SECOND)
    with pytest.raises(IdentityLost, match="no valid client certificate for more than 0:05:00"):
        await run


async def test_an_expired_certificate_counts_as_none(watch, board, clock, new_pair):
    put(board, new_pair(lifetime=MINUTE), "first")
    board.is_server_well = True
    run = asyncio.ensure_future(watch.run())
    await clock.run(6 * MINUTE)
    assert not run.done()
    await clock.run(20 * SECOND)
    with pytest.raises(IdentityLost):
        await run


async def test_a_clock_that_is_set_does_not_end_the_agent(board, transports, new_pair):
    """It is five minutes that have to pass, whatever the time is."""
    clock = SteppingClock()
    watch = IdentityWatch(board=board, refresh=transports.refresh, recorder=MemoryJournal(clock=clock), clock=clock)
    put(board, new_pair(), "first")
    board.is_server_well = True
    run = asyncio.ensure_future(watch.run())
    await clock.run(MINUTE)
    clock.step = timedelta(days=10_000)
    await clock.run(MINUTE)
    assert not run.done()
    clock.step = timedelta()
    await clock.run(10 * MINUTE)
    assert not run.done()
    run.cancel()


async def test_a_server_that_does_not_answer_keeps_the_agent_alive(watch, journal, clock, caplog):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        await clock.run(10 * MINUTE)
        assert not task.done()
        task.cancel()
    assert "the API server does not answer" in caplog.text
    [cause] = journal.all()
    assert cause.finding.decision == "ClientCertificateLost"


class Server:
    def __init__(self):
        self.used = asyncio.Queue()
        self.is_picky = False

    async def use(self, certificate_file, key_file, *, until):
        assert certificate_file == key_file
        assert until > NOW
        self.used.put_nowait(str(certificate_file))
        if self.is_picky:
            raise KletError("not this one")


async def test_a_server_is_handed_the_pair_that_is_there_and_each_new_one(board, new_pair, caplog):
    server = Server()
    put(board, new_pair(), "first")
    async with asyncio.TaskGroup() as group:
        served = ServedPair(board=board, user=server)
        await served.open()
        assert server.used.get_nowait() == "first"
        task = group.create_task(served.run())
        server.is_picky = True
        put(board, new_pair(), "second")
        assert await server.used.get() == "second"
        put(board, new_pair(), "third")
        assert await server.used.get() == "third"
        task.cancel()
    assert "The serving certificate stays as it was" in caplog.text
