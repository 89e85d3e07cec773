"""The PLEG on the fake runtime in virtual time: events, relists, faults."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from klet.aio.clock import LoopClock
from klet.cri.client import CriClient
from klet.cri.errors import Code, Unavailable
from klet.cri.events import ContainerdEvents, CriEvents, RuntimeEvent, RuntimeEventSource
from klet.metrics import MetricRegistry
from klet.model.allocation import desired_allocation
from klet.model.network import DnsConfig
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, FirstStart, RuntimeContainerState
from klet.pleg.cache import RuntimeCache
from klet.pleg.metrics import register_pleg
from klet.pleg.pleg import READERS, Pleg, PlegError, PlegSettings
from klet.pleg.state import NEVER
from klet.runtime import labels
from klet.runtime.config.sandbox_config import SandboxSettings, build_sandbox_config
from klet.runtime.reader import PodReader, build_sandbox_record
from klet.simulation import MemoryTerminationFiles
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import (
    ANY,
    DropEvent,
    EventFault,
    FakeImage,
    FakeRuntime,
    Fault,
    Features,
    Hang,
    Late,
    MemorySink,
    Repeat,
    Script,
)
from klet.testing.fake_runtime.faults import DelayCall, Fail
from klet.testing.fake_runtime.lives import LifeChooser, always, lives_forever, runs_for
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

EXITED, RUNNING = RuntimeContainerState.EXITED, RuntimeContainerState.RUNNING


class Bench:
    """A PLEG that runs, the runtime it watches, and a hand that makes pods."""

    def __init__(
        self, runtime: FakeRuntime, client: CriClient, clock: LoopClock, sources: Sequence[RuntimeEventSource]
    ) -> None:
        self.runtime = runtime
        self.client = client
        self.clock = clock
        self.cache = RuntimeCache()
        reader = PodReader(runtime=client, files=MemoryTerminationFiles(sink=MemorySink()))
        self.pleg = Pleg(
            reader=reader,
            sources=sources,
            cache=self.cache,
            clock=clock,
            settings=PlegSettings(),
            metrics=register_pleg(MetricRegistry()),
        )

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    async def make(self, uid: str = "u-1") -> tuple[str, str]:
        """A pod with one running container: the ids of sandbox and container."""
        pod = make_pod("main", name=uid, uid=uid)
        settings = SandboxSettings(logs=Path("/logs"))
        config = build_sandbox_config(
            pod, desired_allocation(pod), attempt=0, dns=DnsConfig(), cgroup_parent="", settings=settings
        )
        sandbox = (await self.client.run_pod_sandbox(cri.RunPodSandboxRequest(config=config))).pod_sandbox_id
        made = await self.client.create_container(
            cri.CreateContainerRequest(
                pod_sandbox_id=sandbox,
                sandbox_config=config,
                config=cri.ContainerConfig(
                    metadata=cri.ContainerMetadata(name="main"),
                    image=cri.ImageSpec(image=IMAGE),
                    labels=labels.container_labels(pod, pod.spec.containers[0]),
                ),
            )
        )
        await self.client.start_container(cri.StartContainerRequest(container_id=made.container_id))
        return sandbox, made.container_id

    async def remove(self, sandbox: str) -> None:
        await self.client.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        await self.client.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    def end(self, container: str, exit_code: int) -> None:
        """The container's process ends now: the runtime must know how late it is."""
        self.runtime.advance(self.clock.now())
        self.runtime.end_container(container, exit_code)

    def state(self, uid: str = "u-1") -> RuntimeContainerState | None:
        """What the cache shows of the pod's container."""
        reading = self.cache.get(PodUID(uid))
        record = reading.status.newest("main") if reading is not None else None
        return record.state if record is not None else None

    def relists(self) -> list[float]:
        """When all pods were listed."""
        return [
            (call.at - EPOCH).total_seconds()
            for call in self.runtime.calls
            if call.rpc == "ListPodSandbox" and not call.request.HasField("filter")
        ]

    def reads(self) -> int:
        return sum(call.rpc == "ListPodSandbox" and call.request.HasField("filter") for call in self.runtime.calls)


Sources = Callable[[CriClient], Sequence[RuntimeEventSource]]


def containerd_stream(client: CriClient) -> Sequence[RuntimeEventSource]:
    return (ContainerdEvents(connection=client.runtime),)


def cri_stream(client: CriClient) -> Sequence[RuntimeEventSource]:
    return (CriEvents(runtime=client),)


def no_stream(_client: CriClient) -> Sequence[RuntimeEventSource]:
    return ()


def on_bench(
    test: Callable[[Bench], Awaitable[None]],
    *,
    sources: Sources = containerd_stream,
    features: Features = Features(),  # noqa: B008 - a value
    lives: LifeChooser = lives_forever,
    before: Callable[[Bench], Awaitable[None]] | None = None,
) -> None:
    async def main() -> None:
        clock = LoopClock(epoch=EPOCH)
        runtime = FakeRuntime(start=EPOCH, script=Script(lives=lives), features=features, images=(FakeImage(IMAGE),))
        async with run_in_process(runtime, clock=clock) as client:
            bench = Bench(runtime, client, clock, sources(client))
            if before is not None:
                await before(bench)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(bench.pleg.run())
                await test(bench)
                task.cancel()

    run_virtual(main())


async def one_pod(bench: Bench) -> None:
    await bench.make()


def test_the_first_relist_fills_the_cache():
    async def test(bench: Bench) -> None:
        assert bench.pleg.health_error() == "pleg has yet to be successful"
        await bench.pleg.until_relisted()
        assert bench.state() is RUNNING
        assert bench.pleg.health_error() is None

    on_bench(test, before=one_pod)


@pytest.mark.parametrize(
    ("sources", "features"),
    [
        pytest.param(containerd_stream, Features(), id="containerd's stream"),
        pytest.param(cri_stream, Features(container_events=True), id="the CRI's stream"),
    ],
)
def test_events_reach_the_cache_at_once(sources, features):
    async def test(bench: Bench) -> None:
        await bench.sleep(10)
        _, container = await bench.make()
        await bench.sleep(0.1)
        assert bench.state() is RUNNING
        before = bench.relists()
        bench.end(container, 1)
        await bench.sleep(0.1)
        assert bench.state() is EXITED
        assert bench.relists() == before

    on_bench(test, sources=sources, features=features)


def test_beside_a_stream_relists_are_rare_and_one_comes_soon_after_it_opened():
    async def test(bench: Bench) -> None:
        await bench.sleep(200)
        late = [at for at in bench.relists() if at > 0]
        assert late == [1, 61, 121, 181]

    on_bench(test)


def test_without_a_stream_the_runtime_is_listed_every_second():
    async def test(bench: Bench) -> None:
        await bench.sleep(5.5)
        assert bench.relists() == [0, 1, 2, 3, 4, 5]
        _, container = await bench.make()
        await bench.sleep(1)
        assert bench.state() is RUNNING
        bench.end(container, 1)
        await bench.sleep(1)
        assert bench.state() is EXITED

    on_bench(test, sources=no_stream)


def test_a_stream_that_the_runtime_does_not_have_gives_way_to_the_next():
    def both(client: CriClient) -> Sequence[RuntimeEventSource]:
        return (*cri_stream(client), *containerd_stream(client))

    async def test(bench: Bench) -> None:
        await bench.sleep(30)
        before = bench.relists()
        await bench.make()
        await bench.sleep(0.1)
        assert bench.state() is RUNNING
        assert bench.relists() == before

    on_bench(test, sources=both)


def test_when_no_stream_is_left_the_runtime_is_listed_every_second():
    async def test(bench: Bench) -> None:
        await bench.sleep(5.5)
        assert [at for at in bench.relists() if at > 0] == [1, 2, 3, 4, 5]

    on_bench(test, sources=cri_stream)


def test_lost_events_are_made_up_for_by_the_relist():
    async def test(bench: Bench) -> None:
        await bench.sleep(2)
        bench.runtime.faults.add_to_events(EventFault(ANY, DropEvent(), count=None))
        await bench.make()
        await bench.sleep(1)
        assert bench.state() is None
        await bench.sleep(60)
        assert bench.state() is RUNNING

    on_bench(test)


class CutStream:
    """Events up to some instant; from then on the stream cannot be opened any more."""

    def __init__(self, inner: RuntimeEventSource, *, until: float) -> None:
        self._inner = inner
        self._until = until

    async def subscribe(self) -> AsyncGenerator[RuntimeEvent, None]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._until), aclosing(self._inner.subscribe()) as events:
                async for event in events:
                    yield event
        except TimeoutError:
            raise Unavailable(Code.UNAVAILABLE, f"cut at {loop.time()}") from None


def cut_stream(client: CriClient) -> Sequence[RuntimeEventSource]:
    return (CutStream(ContainerdEvents(connection=client.runtime), until=10),)


def test_a_stream_that_is_cut_for_good_leaves_the_relist_of_each_second():
    async def test(bench: Bench) -> None:
        sandbox, container = await bench.make("old")
        await bench.sleep(20.5)
        _, other = await bench.make("new")
        bench.end(container, 1)
        await bench.sleep(1)
        assert (bench.state("old"), bench.state("new")) == (EXITED, RUNNING)
        bench.end(other, 1)
        await bench.remove(sandbox)
        await bench.sleep(1)
        assert (bench.state("old"), bench.state("new")) == (None, EXITED)
        assert bench.pleg.health_error() is None
        late = [at for at in bench.relists() if at > 15]
        assert all(after - before < 1.01 for before, after in pairwise(late))

    on_bench(test, sources=cut_stream)


def test_a_stream_that_sends_nothing_leaves_the_relist_of_each_minute():
    async def test(bench: Bench) -> None:
        sandbox, container = await bench.make("old")
        await bench.sleep(5)
        bench.runtime.faults.add_to_events(EventFault(ANY, DropEvent(), count=None))
        _, other = await bench.make("new")
        bench.end(container, 1)
        await bench.sleep(60)
        assert (bench.state("old"), bench.state("new")) == (EXITED, RUNNING)
        bench.end(other, 1)
        await bench.remove(sandbox)
        await bench.sleep(60)
        assert (bench.state("old"), bench.state("new")) == (None, EXITED)

    on_bench(test)


def test_events_that_come_twice_do_no_harm():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        bench.runtime.faults.add_to_events(EventFault(ANY, Repeat(), count=None))
        sandbox, container = await bench.make()
        await bench.sleep(0.1)
        assert bench.state() is RUNNING
        bench.end(container, 1)
        await bench.sleep(0.1)
        assert bench.state() is EXITED
        await bench.remove(sandbox)
        await bench.sleep(2)
        assert bench.cache.pods() == {}
        settled = bench.reads()
        await bench.sleep(30)
        assert bench.reads() == settled

    on_bench(test)


def test_events_that_come_late_come_to_the_same():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        bench.runtime.faults.add_to_events(EventFault(ANY, Late(timedelta(seconds=5)), count=None))
        sandbox, container = await bench.make()
        await bench.sleep(5.1)
        assert bench.state() is RUNNING
        bench.end(container, 1)
        await bench.sleep(5.1)
        assert bench.state() is EXITED
        await bench.remove(sandbox)
        await bench.sleep(10)
        assert bench.cache.pods() == {}
        settled = bench.reads()
        await bench.sleep(30)
        assert bench.reads() == settled

    on_bench(test)


@pytest.mark.parametrize("topic", ["/containers/create", "/tasks/start", "/tasks/exit"])
def test_an_event_that_comes_after_those_that_followed_it_turns_nothing_back(topic):
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        bench.runtime.faults.add_to_events(EventFault(topic, Late(timedelta(seconds=10)), count=None))
        sandbox, container = await bench.make()
        await bench.sleep(1)
        bench.end(container, 1)
        await bench.sleep(1)
        await bench.remove(sandbox)
        await bench.sleep(0.1)
        assert bench.cache.pods() == {}
        await bench.sleep(12)
        assert bench.cache.pods() == {}
        settled = bench.reads()
        await bench.sleep(30)
        assert bench.reads() == settled

    on_bench(test)


def test_a_broken_stream_is_opened_again_and_what_it_missed_is_listed():
    async def test(bench: Bench) -> None:
        await bench.sleep(10)
        bench.runtime.faults.add_to_events(EventFault(ANY, DropEvent(), count=None))
        await bench.make("missed")
        bench.runtime.faults.clear()
        before = len(bench.relists())
        bench.runtime.disconnect()
        await bench.sleep(0.05)
        assert bench.state("missed") is RUNNING
        assert len(bench.relists()) > before
        await bench.sleep(5)
        settled = bench.relists()
        _, container = await bench.make("after")
        await bench.sleep(0.1)
        assert bench.state("after") is RUNNING
        bench.end(container, 0)
        await bench.sleep(0.1)
        assert bench.state("after") is EXITED
        assert bench.relists() == settled

    on_bench(test)


def test_a_view_that_lags_behind_its_events_is_read_until_it_agrees():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        _, container = await bench.make()
        await bench.sleep(1.1)
        before = bench.reads()
        bench.end(container, 1)
        await bench.sleep(0.19)
        assert bench.state() is RUNNING
        assert bench.reads() - before == len((0, 5, 10, 15, 22.5, 34, 51, 76, 114, 171))
        await bench.sleep(0.07)
        assert bench.state() is EXITED
        settled = bench.reads()
        await bench.sleep(10)
        assert bench.reads() == settled

    on_bench(test, features=Features(view_lag=timedelta(milliseconds=200)))


def test_a_view_that_lags_for_seconds_is_looked_at_now_and_then():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        _, container = await bench.make()
        await bench.sleep(10)
        bench.end(container, 1)
        await bench.sleep(1.1)
        before = bench.reads()
        await bench.sleep(2.9)
        assert bench.state() is not EXITED
        assert bench.reads() - before == 2
        await bench.sleep(3.5)
        assert bench.state() is EXITED

    on_bench(test, features=Features(view_lag=timedelta(seconds=5)))


def test_a_view_that_never_agrees_is_not_read_for_ever():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        _, container = await bench.make()
        await bench.sleep(2)
        bench.end(container, 1)
        await bench.sleep(130)
        settled = bench.reads()
        await bench.sleep(25)
        assert bench.reads() == settled

    on_bench(test, features=Features(view_lag=timedelta(hours=1)))


def of_pod(uid: str) -> Callable[[cri.ListPodSandboxRequest], bool]:
    return lambda request: request.filter.label_selector.get(labels.POD_UID) == uid


def of_container(container: str) -> Callable[[cri.ContainerStatusRequest], bool]:
    return lambda request: request.container_id == container


def test_a_hung_read_of_one_pod_blocks_no_other():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        bench.runtime.faults.add(Fault("ListPodSandbox", Hang(), matches=of_pod("stuck"), count=None))
        await bench.make("stuck")
        for number in range(20):
            await bench.make(f"u-{number}")
        await bench.sleep(0.1)
        assert [bench.state(f"u-{number}") for number in range(20)] == [RUNNING] * 20
        assert bench.state("stuck") is None
        await bench.sleep(11)
        reading = bench.cache.get(PodUID("stuck"))
        assert reading is not None
        assert str(reading.error) == "the runtime did not answer within 10s"

    on_bench(test)


def test_a_stuck_pod_marks_only_itself():
    async def test(bench: Bench) -> None:
        _, container = await bench.make("stuck")
        _, other = await bench.make("well")
        await bench.sleep(5)
        stuck = bench.runtime.faults.add(Fault("ContainerStatus", Hang(), matches=of_container(container), count=None))
        bench.end(container, 1)
        bench.end(other, 1)
        await bench.sleep(600)
        readings = {uid: bench.cache.get(PodUID(uid)) for uid in ("stuck", "well")}
        assert readings["stuck"].error is not None
        assert readings["well"].error is None
        assert (bench.state("stuck"), bench.state("well")) == (RUNNING, EXITED)
        assert bench.pleg.health_error() is None
        stuck.release()
        await bench.sleep(12)
        assert bench.state("stuck") is EXITED

    on_bench(test)


def test_more_stuck_pods_than_readers_delay_no_other():
    async def test(bench: Bench) -> None:
        stuck = [await bench.make(f"stuck-{number}") for number in range(3 * READERS)]
        _, container = await bench.make("well")
        await bench.sleep(5)
        ids = {member for member, _ in stuck}
        bench.runtime.faults.add(
            Fault("PodSandboxStatus", Hang(), matches=lambda request: request.pod_sandbox_id in ids, count=None)
        )
        for _, member in stuck:
            bench.end(member, 1)
        await bench.sleep(30)
        bench.end(container, 1)
        await bench.sleep(0.1)
        assert bench.state("well") is EXITED

    on_bench(test)


def test_a_hung_read_at_the_start_delays_only_the_start_and_only_until_its_deadline():
    async def before(bench: Bench) -> None:
        await bench.make("stuck")
        for number in range(20):
            await bench.make(f"u-{number}")
        bench.runtime.faults.add(Fault("ListPodSandbox", Hang(), matches=of_pod("stuck"), count=None))

    async def test(bench: Bench) -> None:
        await bench.sleep(0.1)
        assert [bench.state(f"u-{number}") for number in range(20)] == [RUNNING] * 20
        await bench.pleg.until_relisted()
        assert bench.clock.monotonic() == 10

    on_bench(test, before=before)


def test_a_pod_that_could_never_be_read_runs_if_it_is_listed():
    async def before(bench: Bench) -> None:
        _, container = await bench.make("stuck")
        bench.runtime.faults.add(Fault("ContainerStatus", Fail(), matches=of_container(container), count=None))

    async def test(bench: Bench) -> None:
        await bench.pleg.until_relisted()
        shown = bench.cache.pods()[PodUID("stuck")]
        assert (shown.name, shown.namespace, shown.is_live) == ("stuck", "default", True)
        with pytest.raises(PlegError, match="injected fault"):
            await bench.pleg.fresh_status(PodUID("stuck"), newer_than=float("-inf"))

    on_bench(test, before=before)


def test_a_hung_search_for_an_owner_holds_up_no_other_event():
    def is_search(request: cri.ListContainersRequest) -> bool:
        return bool(request.filter.id)

    async def test(bench: Bench) -> None:
        await bench.make("known")
        await bench.sleep(5)
        known = bench.runtime.containers()[0].id
        bench.runtime.faults.add(Fault("ListContainers", Hang(), matches=is_search, count=3))
        await bench.make("new")
        bench.end(known, 1)
        await bench.sleep(0.1)
        assert bench.state("known") is EXITED
        await bench.sleep(15)
        assert bench.state("new") is RUNNING

    on_bench(test)


def test_a_failed_read_is_returned_to_the_caller_and_repeated():
    async def test(bench: Bench) -> None:
        _, container = await bench.make()
        await bench.sleep(5)
        bench.runtime.faults.add(Fault("ContainerStatus", Fail(Code.INTERNAL, "oops"), count=2))
        bench.end(container, 1)
        await bench.sleep(0.1)
        reading = bench.cache.get(PodUID("u-1"))
        assert reading is not None
        assert isinstance(reading.error, PlegError)
        assert bench.state() is RUNNING
        with pytest.raises(PlegError, match="oops"):
            await bench.pleg.fresh_status(PodUID("u-1"), newer_than=bench.pleg.mark())
        await bench.sleep(1.1)
        assert bench.state() is EXITED

    on_bench(test)


def test_a_fresh_status_is_read_only_if_the_known_one_is_too_old():
    async def test(bench: Bench) -> None:
        await bench.make()
        await bench.sleep(5)
        before = bench.reads()
        await bench.pleg.fresh_status(PodUID("u-1"), newer_than=-1.0)
        assert bench.reads() == before
        now = bench.pleg.mark()
        await bench.sleep(1)
        status = await bench.pleg.fresh_status(PodUID("u-1"), newer_than=now)
        assert bench.reads() == before + 1
        assert len(status.running()) == 1
        assert (await bench.pleg.fresh_status(PodUID("nobody"), newer_than=now)).is_empty

    on_bench(test)


def test_of_a_pod_that_the_runtime_never_showed_there_is_nothing_to_read():
    async def test(bench: Bench) -> None:
        await bench.make()
        await bench.sleep(5)
        before = bench.reads()
        assert (await bench.pleg.fresh_status(PodUID("new"), newer_than=NEVER)).is_empty
        assert bench.reads() == before

    on_bench(test)


def test_a_pod_is_read_while_events_may_be_its_own():
    def is_search(request: cri.ListContainersRequest | cri.ListPodSandboxRequest) -> bool:
        return bool(request.filter.id)

    async def test(bench: Bench) -> None:
        await bench.pleg.until_relisted()
        for rpc in ("ListContainers", "ListPodSandbox"):
            bench.runtime.faults.add(Fault(rpc, Hang(), matches=is_search, count=None))
        await bench.make("new")
        await bench.sleep(0.1)
        assert bench.cache.get(PodUID("new")) is None
        assert not (await bench.pleg.fresh_status(PodUID("new"), newer_than=NEVER)).is_empty

    on_bench(test)


def test_a_slow_reading_does_not_replace_a_newer_one():
    async def test(bench: Bench) -> None:
        _, container = await bench.make()
        await bench.sleep(5)
        slow = Fault("ContainerStatus", DelayCall(timedelta(seconds=5), after_effect=True))
        bench.runtime.faults.add(slow)
        async with asyncio.TaskGroup() as group:
            old = group.create_task(bench.pleg.fresh_status(PodUID("u-1"), newer_than=bench.pleg.mark()))
            await bench.sleep(1)
            bench.end(container, 1)
            await bench.sleep(1)
            assert bench.state() is EXITED
        assert len(old.result().running()) == 1
        assert bench.state() is EXITED

    on_bench(test)


def test_the_addresses_of_a_dead_sandbox_are_kept():
    async def test(bench: Bench) -> None:
        sandbox, _ = await bench.make()
        await bench.sleep(2)
        reading = bench.cache.get(PodUID("u-1"))
        assert reading is not None
        ips = reading.status.ips
        assert ips
        await bench.client.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        await bench.sleep(2)
        reading = bench.cache.get(PodUID("u-1"))
        assert reading is not None
        assert not reading.status.is_live
        assert reading.status.ips == ips

    on_bench(test)


def test_a_pod_that_is_gone_is_forgotten_in_the_end():
    async def test(bench: Bench) -> None:
        sandbox, _ = await bench.make()
        await bench.sleep(2)
        await bench.remove(sandbox)
        await bench.sleep(0.1)
        assert bench.cache.pods() == {}
        await bench.sleep(130)
        assert bench.cache.get(PodUID("u-1")) is None

    on_bench(test)


def test_a_runtime_that_is_away_makes_the_agent_ill_and_its_return_well():
    async def test(bench: Bench) -> None:
        await bench.sleep(2)
        away = Fault("ListPodSandbox", Fail(Code.UNAVAILABLE, "away"), count=None)
        bench.runtime.faults.add(away)
        await bench.sleep(110)
        assert bench.pleg.health_error() is None
        await bench.sleep(120)
        error = bench.pleg.health_error()
        assert error is not None
        assert error.startswith("pleg was last seen active 3m")
        assert error.endswith(" ago; threshold is 3m0s")
        bench.runtime.faults.clear()
        await bench.sleep(4)
        assert bench.pleg.health_error() is None

    on_bench(test)


def test_containers_that_live_for_a_moment_are_seen():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        await bench.make()
        await bench.sleep(0.2)
        assert bench.state() is EXITED

    on_bench(test, lives=always(runs_for(timedelta(milliseconds=1), exit_code=0)))


def test_what_klet_itself_starts_is_read_once_and_never_searched_for():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        before = bench.reads()
        with bench.pleg.changing(PodUID("u-1")):
            await bench.make("u-1")
            await bench.sleep(1)
            assert bench.reads() == before
        await bench.sleep(0.1)
        assert bench.state("u-1") is RUNNING
        await bench.sleep(10)
        assert bench.reads() == before + 1

    on_bench(test)


async def start_first(bench, uid="u-1", hook=None):
    """A pod that klet has just started; its sandbox and container."""
    with bench.pleg.changing(PodUID(uid)):
        sandbox, container = await bench.make(uid)
        shown = (await bench.client.pod_sandbox_status(cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox))).status
        if hook is not None:
            await hook(sandbox)
        bench.pleg.note_first_start(PodUID(uid), FirstStart(build_sandbox_record(shown), (ContainerId(container),)))
    return sandbox, container


def test_what_klet_has_just_started_is_not_searched_for():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        before = bench.reads()
        _, container = await start_first(bench)
        await bench.sleep(10)
        assert (bench.state("u-1"), bench.reads()) == (RUNNING, before)
        bench.end(container, 1)
        await bench.sleep(0.1)
        assert (bench.state("u-1"), bench.reads()) == (EXITED, before + 1)

    on_bench(test)


@pytest.mark.parametrize("sources", [containerd_stream, no_stream], ids=["with events", "without"])
def test_a_sandbox_that_dies_while_its_first_container_starts_is_noticed(sources):
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        with bench.pleg.changing(PodUID("u-1")):
            sandbox, _ = await start_first(bench)
            bench.runtime.kill_sandbox(sandbox)
        await bench.sleep(2)
        reading = bench.cache.get(PodUID("u-1"))
        assert [each.ready for each in reading.status.sandboxes] == [False]

    on_bench(test, sources=sources)


@pytest.mark.parametrize("sources", [containerd_stream, no_stream], ids=["with events", "without"])
def test_a_sandbox_that_dies_during_a_hook_of_its_first_container_stays_dead(sources):
    async def test(bench: Bench) -> None:
        async def hook(sandbox: str) -> None:
            bench.runtime.advance(bench.clock.now())
            bench.runtime.kill_sandbox(sandbox)
            await bench.sleep(10)

        await bench.sleep(5)
        await start_first(bench, hook=hook)
        await bench.sleep(10)
        reading = bench.cache.get(PodUID("u-1"))
        assert [each.ready for each in reading.status.sandboxes] == [False]

    on_bench(test, sources=sources)


def test_a_pod_that_comes_and_goes_between_two_lists_is_noticed_to_be_gone():
    async def test(bench: Bench) -> None:
        await bench.sleep(5.1)
        sandbox, _ = await start_first(bench)
        await bench.sleep(0.1)
        assert bench.state("u-1") is RUNNING
        await bench.remove(sandbox)
        await bench.sleep(2)
        assert bench.state("u-1") is None

    on_bench(test, sources=no_stream)


def test_whoever_asks_after_a_change_shares_the_reading_that_follows_it():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        bench.runtime.faults.add(
            Fault("ListPodSandbox", DelayCall(timedelta(seconds=1)), matches=of_pod("u-1"), count=None)
        )
        before = bench.reads()
        with bench.pleg.changing(PodUID("u-1")):
            await bench.make("u-1")
        changed_at = bench.pleg.mark()
        await bench.sleep(0.5)
        status = await bench.pleg.fresh_status(PodUID("u-1"), newer_than=changed_at)
        assert (len(status.running()), bench.reads() - before) == (1, 1)
        with bench.pleg.changing(PodUID("u-1")):
            pass
        asked_at = bench.pleg.mark()
        await bench.pleg.fresh_status(PodUID("u-1"), newer_than=asked_at)
        await bench.sleep(10)
        assert bench.reads() - before == 2

    on_bench(test)


def test_a_reading_that_began_too_early_is_not_shared():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        _, container = await bench.make("u-1")
        await bench.sleep(5)
        bench.runtime.faults.add(
            Fault("ListPodSandbox", DelayCall(timedelta(seconds=1)), matches=of_pod("u-1"), count=2)
        )
        async with asyncio.TaskGroup() as group:
            first = group.create_task(bench.pleg.read_now(PodUID("u-1")))
            await bench.sleep(0.5)
            bench.end(container, 1)
            second = group.create_task(bench.pleg.read_now(PodUID("u-1")))
        assert bench.state("u-1") is EXITED
        assert not second.result().running()
        assert first.done()

    on_bench(test)


def test_whoever_waits_for_a_reading_whose_reader_goes_away_reads_for_itself():
    async def test(bench: Bench) -> None:
        await bench.make("u-1")
        await bench.sleep(5)
        bench.runtime.faults.add(Fault("ListPodSandbox", Hang(), matches=of_pod("u-1")))
        now = bench.pleg.mark()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(bench.pleg.fresh_status(PodUID("u-1"), newer_than=now))
            await bench.sleep(0.5)
            second = group.create_task(bench.pleg.fresh_status(PodUID("u-1"), newer_than=now))
            await bench.sleep(0.5)
            first.cancel()
        assert len(second.result().running()) == 1

    on_bench(test)


def test_a_relist_does_not_read_again_what_was_read_since_the_last_one():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        await bench.make("u-1")
        await bench.sleep(10)
        before = bench.reads()
        relists = len(bench.relists())
        await bench.sleep(60)
        assert len(bench.relists()) > relists
        assert bench.reads() == before

    on_bench(test)


def test_what_others_start_meanwhile_is_found_a_little_later():
    async def test(bench: Bench) -> None:
        await bench.sleep(5)
        with bench.pleg.changing(PodUID("u-1")):
            _, container = await bench.make("u-2")
            await bench.sleep(5.5)
            assert bench.state("u-2") is RUNNING
            _, container = await bench.make("u-3")
            bench.end(container, 1)
            await bench.sleep(0.1)
            assert bench.state("u-3") is EXITED

    on_bench(test)
