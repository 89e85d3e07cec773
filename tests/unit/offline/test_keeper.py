import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from klet.api.pod import PodStatus
from klet.checkpoint import CheckpointError
from klet.offline.keeper import GATHER, PATIENCE, RETRY, PodKeeper
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

POD = make_pod(name="p", uid="u")
OTHER = make_pod(name="q", uid="v")
RUNNING = replace(POD, status=PodStatus(phase="Running"))


class Disk:
    """Keeps what it is given; can be full, or hang."""

    def __init__(self, trace):
        self.trace = trace
        self.is_full = False
        self.turning = asyncio.Event()
        self.turning.set()
        self.content = None

    async def save(self, value):
        await self.turning.wait()
        if self.is_full:
            self.trace.append("full")
            raise CheckpointError("No space left on device")
        self.content = value
        self.trace.append(f"saved {names(value.pods)}")


class Sink:
    def __init__(self, trace):
        self.trace = trace
        self.source = ""

    def set_pods(self, source, pods):
        self.source = source
        self.trace.append(f"reported {names(pods)}")


def names(pods):
    return " ".join(pod.metadata.name for pod in pods)


class Bench:
    def __init__(self, kept=()):
        self.clock = ManualClock()
        self.trace = []
        self.disk = Disk(self.trace)
        self.sink = Sink(self.trace)
        self.keeper = PodKeeper(
            store=self.disk,
            sink=self.sink,
            node_name="n",
            on_kept=self.clean,
            kept=kept,
            clock=self.clock,
        )

    async def clean(self, pods):
        self.trace.append(f"cleaned for {names(pods)}")

    async def give(self, *pods):
        self.keeper.set_pods("api", pods)
        await self.clock.run(0 * PATIENCE)

    def seen(self):
        seen = list(self.trace)
        self.trace.clear()
        return seen


@asynccontextmanager
async def running(kept=()):
    bench = Bench(kept)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.keeper.run())
        yield bench
        task.cancel()


async def test_a_pod_is_on_disk_before_anybody_acts():
    async with running() as bench:
        await bench.give(POD)
        assert sorted(bench.seen()) == ["cleaned for p", "reported p", "saved p"]
        assert bench.sink.source == "api"
        assert (bench.disk.content.node_name, bench.disk.content.at) == ("n", bench.clock.now())


@pytest.fixture
def order():
    """The order in which the disk and the agent got something."""

    def of(seen):
        return [each for each in seen if not each.startswith("cleaned")]

    return of


async def test_a_pod_that_is_gone_is_forgotten_before_it_is_stopped(order):
    async with running(kept=[POD, OTHER]) as bench:
        await bench.give(OTHER)
        assert order(bench.seen()) == ["saved q", "reported q"]


async def test_what_was_read_at_the_start_is_not_written_again(order):
    async with running(kept=[POD]) as bench:
        await bench.give(POD)
        assert order(bench.seen()) == ["reported p"]


async def test_statuses_are_published_at_once_and_collected_on_disk(order):
    async with running(kept=[POD]) as bench:
        await bench.give(RUNNING)
        assert order(bench.seen()) == ["reported p"]
        await bench.clock.run(GATHER / 2)
        await bench.give(replace(POD, status=PodStatus(phase="Running", message="newest")))
        await bench.clock.run(GATHER)
        assert order(bench.seen()) == ["reported p", "saved p"]
        assert bench.disk.content.pods[0].status.message == "newest"


async def test_a_new_pod_takes_waiting_statuses_with_it(order):
    async with running(kept=[POD]) as bench:
        await bench.give(RUNNING)
        await bench.give(RUNNING, OTHER)
        assert order(bench.seen()) == ["reported p", "saved p q", "reported p q"]
        assert bench.disk.content.pods[0].status.phase == "Running"
        await bench.clock.run(2 * GATHER)
        assert bench.seen() == []


async def test_a_full_disk_is_reported_and_stops_no_pod(order, caplog):
    async with running() as bench:
        bench.disk.is_full = True
        await bench.give(POD)
        assert order(bench.seen()) == ["full", "reported p"]
        assert caplog.messages == ["Without the API server a restart would not know its pods"]
        bench.disk.is_full = False
        await bench.clock.run(RETRY + GATHER)
        assert order(bench.seen()) == ["saved p"]


async def test_a_disk_that_hangs_delays_no_caller_for_long(order):
    async with running() as bench:
        bench.disk.turning.clear()
        await bench.give(POD)
        assert order(bench.seen()) == []
        await bench.clock.run(PATIENCE)
        assert order(bench.seen()) == ["reported p"]
        await bench.give(POD, OTHER)
        await bench.clock.run(PATIENCE)
        assert order(bench.seen()) == ["reported p q"]
        bench.disk.turning.set()
        await bench.clock.run(0 * PATIENCE)
        assert order(bench.seen()) == ["saved p", "saved p q"]


async def test_mirrors_are_reported_and_not_kept(order):
    async with running() as bench:
        mirror = replace(OTHER, metadata=replace(OTHER.metadata, annotations={"kubernetes.io/config.mirror": "h"}))
        await bench.give(POD, mirror)
        assert order(bench.seen()) == ["saved p", "reported p q"]
