import asyncio

import pytest

from klet.aio.threads import Threads
from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.testing.clock import ManualClock


class Sink:
    """Keeps what a source says it has."""

    def __init__(self) -> None:
        self.sets = []
        self._arrived = asyncio.Event()

    def set_pods(self, source, pods) -> None:
        self.sets.append((source, [pod.metadata.name for pod in pods]))
        self._arrived.set()

    async def until(self, count: int) -> list[str]:
        """The names of the last set, once so many have come."""
        async with asyncio.timeout(10):
            while len(self.sets) < count:
                self._arrived.clear()
                await self._arrived.wait()
        assert len(self.sets) == count
        return self.sets[-1][1]


class Journal(MemoryJournal):
    """A journal that shows its decisions."""

    async def reported(self) -> list[str]:
        return [cause.finding.decision for cause in await self.find(CauseQuery())]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def journal(clock):
    return Journal(clock=clock)


@pytest.fixture
def threads():
    threads = Threads(limit=2)
    yield threads
    threads.close()


@pytest.fixture
async def running():
    """Runs parts until the end of the test."""
    async with asyncio.TaskGroup() as group:
        tasks = []

        def start(part) -> None:
            tasks.append(group.create_task(part.run()))

        yield start
        for task in tasks:
            task.cancel()


@pytest.fixture
def wait_for():
    """Waits until something holds."""

    async def wait(holds) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)  # a thread and the kernel are under way; neither can be awaited

    return wait
