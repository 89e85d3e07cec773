"""Several pulls at once on the fake runtime: turns, the rate limit, and what is recorded of a wait, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.cri.client import CriClient
from klet.cri.errors import Code
from klet.images.keyring import FittingLogins
from klet.images.metrics import register_images
from klet.images.pull_queue import PullQueue
from klet.journal.memory import MemoryJournal
from klet.kube.throttle import TokenBucket
from klet.metrics import MetricRegistry
from klet.model.images import MissingImage, PresentImage
from klet.model.pods import SYSTEM_CRITICAL_PRIORITY, PodUID
from klet.model.reasons import Reason
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault, Script, registry_of
from klet.testing.fake_runtime.faults import Fail
from klet.testing.image_manager import build_image_manager
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

HERE = FakeImage("here:1")
BIG = FakeImage("big:1", size=50 << 30, pull_time=timedelta(minutes=10))
SMALL = tuple(FakeImage(f"small{number}:1", size=1, pull_time=timedelta(seconds=2)) for number in range(4))


class NoLogins:
    """Nobody logs in anywhere."""

    async def find(self, _pod, _image, _repository):
        return FittingLogins()


class Bench:
    """An image manager with a queue, over a fake runtime."""

    def __init__(self, runtime: FakeRuntime, client: CriClient, clock: LoopClock, *, at_once, qps, burst) -> None:
        self.runtime = runtime
        self.clock = clock
        self.journal = MemoryJournal(clock=clock)
        self.stopping_pods = StoppingPods()
        self.queue = PullQueue(at_once=at_once)
        self.registry = MetricRegistry()
        self.done: list[tuple[str, float]] = []
        self._manager = build_image_manager(
            client,
            NoLogins(),
            recorder=self.journal,
            clock=clock,
            stopping_pods=self.stopping_pods,
            queue=self.queue,
            limit=TokenBucket(rate=qps, burst=burst, clock=clock) if qps else None,
            metrics=register_images(self.registry),
        )

    async def ensure(self, name: str, image: str, policy: str = "IfNotPresent", *, priority: int | None = None):
        container = replace(make_container("c", image=image), image_pull_policy=policy)
        pod = make_pod(container, name=name, uid=name)
        pod = replace(pod, spec=replace(pod.spec, priority=priority))
        found = await self._manager.ensure(
            pod, container, sandbox=cri.PodSandboxConfig(), before_pull=lambda: None, parent=None
        )
        self.done.append((name, self.clock.monotonic()))
        return found

    def said(self, pod: str) -> list[tuple[str, str]]:
        findings = [cause.finding for cause in self.journal.all() if cause.finding.subject.name == pod]
        return [(str(finding.decision), finding.message) for finding in findings]

    def pulls(self) -> list[str]:
        return [call.request.image.image for call in self.runtime.calls if call.rpc == "PullImage"]


def on_bench(test: Callable[[Bench], Awaitable[None]], *, at_once=1, qps=0, burst=0) -> None:
    async def main() -> None:
        clock = LoopClock(epoch=EPOCH)
        registry = registry_of(BIG, *SMALL)
        runtime = FakeRuntime(start=EPOCH, script=Script(registry=registry), images=(HERE,))
        async with run_in_process(runtime, clock=clock) as client:
            await test(Bench(runtime, client, clock, at_once=at_once, qps=qps, burst=burst))

    run_virtual(main())


def test_serial_pulls_come_one_after_the_other_and_say_how_long_they_waited():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(bench.ensure(f"p{number}", f"small{number}:1"))
        assert bench.done == [("p0", 2.0), ("p1", 4.0), ("p2", 6.0)]
        assert bench.said("p2") == [
            ("Pulling", 'Pulling image "small2:1"'),
            (
                "PullWaits",
                (
                    'Pull of image "small2:1" waits: one pull runs, as many as may at a time; it is behind '
                    '"small0:1" of pod default/p0 (asked for 0s ago), and 1 that waits'
                ),
            ),
            ("PullBegins", 'Pull of image "small2:1" begins after a wait of 4s'),
            ("Pulled", 'Successfully pulled image "small2:1" in 2s (6s including waiting). Image size: 1 bytes.'),
        ]
        waits = next(cause for cause in bench.journal.all() if cause.finding.decision == Reason.PULL_WAITS)
        assert waits.finding.measurements == {
            "running": 1, "before": 0, "behindImage": "small0:1", "behindPod": "default/p0",
        }  # fmt: skip
        begins = next(cause for cause in bench.journal.all() if cause.finding.decision == Reason.PULL_BEGINS)
        assert begins.parent == waits.id

    on_bench(test)


def test_a_huge_image_delays_no_pod_whose_image_is_there():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.ensure("huge", "big:1"))
            await bench.clock.sleep(timedelta(seconds=1))
            for number in range(5):
                assert isinstance(await bench.ensure(f"p{number}", "here:1"), PresentImage)
            assert bench.clock.monotonic() == 1.0
        assert bench.said("p0") == [("Pulled", 'Container image "here:1" already present on machine')]

    on_bench(test)


def test_pulls_in_parallel_go_on_beside_a_huge_one():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.ensure("huge", "big:1"))
            for number in range(3):
                group.create_task(bench.ensure(f"p{number}", f"small{number}:1"))
        assert bench.done == [("p0", 2.0), ("p1", 4.0), ("p2", 6.0), ("huge", 600.0)]
        assert [word for word, _ in bench.said("p0")] == ["Pulling", "Pulled"]
        assert "2 pulls run" in dict(bench.said("p1"))["PullWaits"]

    on_bench(test, at_once=2)


def test_without_a_limit_nobody_waits():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(bench.ensure(f"p{number}", f"small{number}:1"))
        assert {at for _, at in bench.done} == {2.0}

    on_bench(test, at_once=None)


def test_critical_pods_come_first_among_those_that_wait():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(bench.ensure(f"p{number}", f"small{number}:1"))
                await asyncio.sleep(0)
            group.create_task(bench.ensure("critical", "small3:1", priority=SYSTEM_CRITICAL_PRIORITY))
        assert bench.done == [("p0", 2.0), ("critical", 4.0), ("p1", 6.0), ("p2", 8.0)]

    on_bench(test)


def test_a_pull_that_waits_leaves_the_queue_when_its_pod_stops():
    async def test(bench: Bench) -> None:
        async def stopped() -> None:
            with pytest.raises(PodStopping):
                await bench.ensure("p1", "small1:1")
            assert bench.clock.monotonic() == 1.0

        async with asyncio.TaskGroup() as group:
            group.create_task(bench.ensure("p0", "small0:1"))
            await asyncio.sleep(0)
            group.create_task(stopped())
            await asyncio.sleep(0)
            group.create_task(bench.ensure("p2", "small2:1"))
            await bench.clock.sleep(timedelta(seconds=1))
            bench.stopping_pods.mark(PodUID("p1"))
        assert bench.pulls() == ["small0:1", "small2:1"]
        assert bench.done == [("p0", 2.0), ("p2", 4.0)]
        assert (bench.queue.running(), bench.queue.waiting()) == ((), ())

    on_bench(test)


def test_a_failed_pull_gives_its_turn_back():
    async def test(bench: Bench) -> None:
        bench.runtime.faults.add(Fault("PullImage", Fail(Code.UNKNOWN, "no such host")))
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.ensure("p0", "small0:1"))
            await asyncio.sleep(0)
            group.create_task(bench.ensure("p1", "small1:1"))
        assert bench.done == [("p0", 0.0), ("p1", 2.0)]

    on_bench(test)


def test_each_pod_asks_for_an_image_that_several_want():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("p0", "p1"):
                group.create_task(bench.ensure(name, "small0:1"))
        assert bench.pulls() == ["small0:1", "small0:1"]  # the runtime knows what it has already

    on_bench(test)


def test_a_burst_of_nothing_pulls_nothing():
    async def test(bench: Bench) -> None:
        found = await bench.ensure("p0", "small0:1")
        assert found == MissingImage("ErrImagePull", "pull QPS exceeded")
        assert bench.said("p0") == [
            ("Pulling", 'Pulling image "small0:1"'),
            ("Failed", 'Failed to pull image "small0:1": pull QPS exceeded'),
        ]
        assert bench.pulls() == []
        again = await bench.ensure("p0", "small0:1")  # it backs off
        assert again.reason == "ImagePullBackOff"

    on_bench(test, qps=1, burst=0)


def test_pulls_below_the_rate_succeed():
    async def test(bench: Bench) -> None:
        for number in range(5):  # each takes two seconds, in which the bucket has filled again
            assert isinstance(await bench.ensure(f"p{number}", "small0:1", "Always"), PresentImage)

    on_bench(test, qps=1, burst=2)


def test_pulls_above_the_rate_fail_at_once():
    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(bench.ensure(f"p{number}", f"small{number}:1")) for number in range(4)]
        found = [task.result() for task in tasks]
        assert [isinstance(each, PresentImage) for each in found] == [True, True, False, False]
        assert {each.message for each in found[2:]} == {"pull QPS exceeded"}

    on_bench(test, at_once=None, qps=1, burst=2)


def test_the_time_of_a_pull_is_measured_with_its_wait():
    """As upstream's: with four serial pulls of 2 s the pods have waited 2, 4, 6 and 8 s for their images."""

    async def test(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(bench.ensure(f"p{number}", f"small{number}:1"))
        written = bench.registry.write().decode().splitlines()
        lines = [line for line in written if "image_pull_duration_seconds_sum" in line]
        assert [float(line.rpartition(" ")[2]) for line in lines] == [20.0]

    on_bench(test)
