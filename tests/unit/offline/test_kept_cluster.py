import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from klet.api.certificates import ClusterTrustBundle
from klet.api.codec import convert
from klet.api.node import Node
from klet.checkpoint import CheckpointError
from klet.offline.kept_cluster import EVERY, ClusterKeeper
from klet.offline.snapshot import KeptCluster
from klet.testing.clock import ManualClock

AT = datetime(2030, 1, 1, tzinfo=UTC)


def around(version, *, zone="a"):
    node = convert(Node, {"metadata": {"name": "n", "resourceVersion": version, "labels": {"zone": zone}}})
    return KeptCluster(node_name="n", at=AT, nodes=(node,), services=(), runtime_classes=())


class Bench:
    def __init__(self, kept):
        self.clock = ManualClock()
        self.now = None
        self.known = asyncio.Event()
        self.saved = []
        self.is_full = False
        self.keeper = ClusterKeeper(store=self, followed=self, kept=kept, clock=self.clock)

    async def until_known(self):
        await self.known.wait()

    def current(self):
        return self.now

    def show(self, value):
        self.now = value
        self.known.set()

    async def save(self, value):
        if self.is_full:
            raise CheckpointError("No space left on device")
        self.saved.append(value)


@asynccontextmanager
async def running(kept=None):
    bench = Bench(kept)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.keeper.run())
        await bench.clock.run(timedelta())
        yield bench
        task.cancel()


async def test_what_is_not_known_yet_is_not_kept():
    async with running() as bench:
        await bench.clock.run(3 * EVERY)
        assert bench.saved == []
        bench.show(around("1"))
        await bench.clock.run(timedelta())
        assert bench.saved == [around("1")]


async def test_heartbeats_are_not_written():
    async with running(kept=around("1")) as bench:
        bench.show(around("2"))
        await bench.clock.run(3 * EVERY)
        assert bench.saved == []
        bench.show(around("3", zone="b"))
        await bench.clock.run(3 * EVERY)
        assert bench.saved == [around("3", zone="b")]


async def test_a_changed_trust_bundle_is_written():
    async with running(kept=around("1")) as bench:
        bundle = convert(ClusterTrustBundle, {"metadata": {"name": "t"}, "spec": {"trustBundle": "x"}})
        bench.show(replace(around("1"), trust_bundles=(bundle,)))
        await bench.clock.run(EVERY)
        assert [each.trust_bundles for each in bench.saved] == [(bundle,)]


async def test_a_full_disk_is_reported_and_tried_again(caplog):
    async with running() as bench:
        bench.is_full = True
        bench.show(around("1"))
        await bench.clock.run(timedelta())
        assert caplog.messages == ["The surroundings of pods are not kept"]
        bench.is_full = False
        await bench.clock.run(EVERY)
        assert bench.saved == [around("1")]
