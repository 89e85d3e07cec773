"""Garbage collection on the fake runtime, in virtual time."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast, Subscription
from klet.cri.errors import Code
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.runtime.gc import REMOVALS, ContainerGc
from klet.runtime.gc_plan import GcPolicy
from klet.testing.builders import make_pod
from klet.testing.fake_runtime import Fault, Script
from klet.testing.fake_runtime.faults import Fail, Hang
from klet.testing.fake_runtime.lives import always, crashes, runs_for
from klet.wire import cri_v1_pb2 as pb

UID = PodUID("uid-1")
CRASHING = Script(lives=crashes(4))


@dataclass
class Fates:
    """What a test says of the pods."""

    ready: bool = True
    removed: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)

    def are_sources_ready(self) -> bool:
        return self.ready

    def should_content_be_removed(self, uid: PodUID) -> bool:
        return uid in self.removed

    def should_runtime_be_removed(self, uid: PodUID) -> bool:
        return uid in self.removed | self.stopped


class Seen:
    """The newest status that a test showed."""

    def __init__(self) -> None:
        self.statuses: dict[PodUID, PodRuntimeStatus] = {}
        self.news = Broadcast[PodUID]()

    def show(self, status: PodRuntimeStatus) -> None:
        self.statuses[status.uid] = status
        self.news.send(status.uid)

    def changes(self) -> Subscription[PodUID]:
        return self.news.subscribe()

    def status_of(self, uid: PodUID) -> PodRuntimeStatus | None:
        return self.statuses.get(uid)


class Collecting:
    """A collector beside the bench."""

    def __init__(self, bench, policy: GcPolicy | None = None) -> None:
        self.fates, self.seen = Fates(), Seen()
        self.gc = ContainerGc(
            runtime=bench.client,
            remover=bench.remover,
            fates=self.fates,
            seen=self.seen,
            recorder=bench.journal,
            clock=bench.clock,
            policy=policy or GcPolicy(),
        )

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.gc.run())
            yield
            task.cancel()


async def crash_four_times(bench, pod) -> None:
    for _ in range(5):
        await bench.sync(pod)
        await bench.sleep(200)
    assert attempts(bench) == [0, 1, 2, 3, 4]


def attempts(bench) -> list[int]:
    return sorted(container.config.metadata.attempt for container in bench.runtime.containers())


def logs(bench) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in bench.sink.paths() if path.endswith(".log"))


def test_the_end_before_the_running_instance_is_kept_with_its_log(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await crash_four_times(bench, pod)
        assert len(bench.logs.links) == 5
        await Collecting(bench).gc.collect()
        assert attempts(bench) == [3, 4]
        assert logs(bench) == ["3.log", "4.log"]
        assert len(bench.logs.links) == 2
        status = await bench.status(pod)
        assert [record.restart_count for record in status.containers] == [4, 3]

    on_bench(test, CRASHING)


def test_it_looks_every_minute(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        async with Collecting(bench).running():
            await bench.sleep(1)
            for _ in range(5):
                await bench.sync(pod)
                await bench.sleep(1)
            assert attempts(bench) == [0, 1, 2, 3, 4]
            await bench.sleep(60)
            assert attempts(bench) == [3, 4]

    on_bench(test, CRASHING, longest_backoff=timedelta(0))


def test_an_old_instance_goes_as_soon_as_a_newer_one_has_died(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        collecting = Collecting(bench)
        await crash_four_times(bench, pod)
        async with collecting.running():
            await bench.sleep(0.5)
            collecting.seen.show(await bench.status(pod))
            await bench.sleep(0.5)
            assert attempts(bench) == [3, 4]

    on_bench(test, CRASHING)


def test_a_start_that_was_broken_off_displaces_no_other(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        collecting = Collecting(bench)
        await crash_four_times(bench, pod)
        bench.runtime.end_container((await bench.status(pod)).containers[0].id, 128)
        status = await bench.status(pod)
        broken_off = replace(status.containers[0], state=RuntimeContainerState.CREATED)
        collecting.seen.show(replace(status, containers=(broken_off, *status.containers[1:])))
        await collecting.gc.collect()
        assert attempts(bench) == [3, 4]

    on_bench(test, CRASHING)


@pytest.mark.parametrize("ready", [True, False])
def test_of_a_pod_that_is_gone_everything_goes_once_all_sources_were_seen(on_bench, ready):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), parent=None)
        collecting = Collecting(bench)
        collecting.fates.ready = ready
        collecting.fates.removed.add(uid_of(pod))
        await collecting.gc.collect()
        left = (
            len(bench.runtime.containers()),
            len(bench.runtime.sandboxes()),
            len(logs(bench)),
            len(bench.logs.links),
        )
        assert left == ((0, 0, 0, 0) if ready else (1, 1, 1, 1))

    on_bench(test)


def test_a_pod_that_has_only_stopped_goes_when_room_is_needed(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), parent=None)
        collecting = Collecting(bench)
        collecting.fates.stopped.add(uid_of(pod))
        await collecting.gc.collect()
        assert attempts(bench) == [0]
        await collecting.gc.collect(all_stopped=True)
        assert bench.runtime.containers() == bench.runtime.sandboxes() == ()

    on_bench(test)


def test_an_old_sandbox_goes_when_it_is_empty(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        for _ in range(2):
            await bench.sync(pod)
            bench.runtime.kill_sandbox(bench.runtime.sandboxes()[-1].id)
            await bench.sleep(60)
        await bench.sync(pod)
        collecting = Collecting(bench)
        await collecting.gc.collect()
        # The container of the second sandbox is the one before the running one; that of the first is gone.
        assert sorted(sandbox.config.metadata.attempt for sandbox in bench.runtime.sandboxes()) == [1, 2]

    on_bench(test)


def test_what_runs_is_never_removed(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        [record] = (await bench.status(pod)).containers
        collecting = Collecting(bench, GcPolicy(max_per_container=0))
        collecting.fates.removed.add(uid_of(pod))
        await bench.remover.remove(record.id)
        await collecting.gc.collect()
        assert (await bench.status(pod)).is_live

    on_bench(test)


def test_a_container_in_unknown_state_is_stopped_before_it_is_removed(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        [container] = bench.runtime.containers()
        container.state = pb.CONTAINER_UNKNOWN
        await bench.remover.remove(container.id)
        assert bench.called()[-2:] == ["StopContainer", "RemoveContainer"]
        assert ("Killing", "Container is in unknown state, try killing it before removal") in await bench.events()

    on_bench(test)


def test_links_that_lead_nowhere_go(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        bench.logs.links["old_default_a-0123456789.log"] = "/gone"
        await Collecting(bench).gc.collect()
        assert list(bench.logs.links.values()) == [(await bench.status(pod)).containers[0].log_path]

    on_bench(test)


def test_one_stage_that_fails_does_not_keep_the_others_from_running(on_bench):
    async def test(bench) -> None:
        bench.logs.links["old_default_a-0123456789.log"] = "/gone"
        bench.runtime.faults.add(Fault("ListPodSandbox", Fail(Code.UNKNOWN, "broken")))
        await Collecting(bench).gc.collect()
        assert bench.logs.links == {}
        assert ("ContainerGCFailed", "rpc error: code = Unknown desc = broken") in await bench.events()

    on_bench(test)


def test_a_container_that_cannot_be_removed_is_tried_again(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await crash_four_times(bench, pod)
        collecting = Collecting(bench)
        bench.runtime.faults.add(Fault("RemoveContainer", Fail(Code.UNKNOWN, "busy")))
        await collecting.gc.collect()
        assert attempts(bench) == [0, 3, 4]
        await collecting.gc.collect()
        assert attempts(bench) == [3, 4]

    on_bench(test, CRASHING)


@pytest.mark.parametrize("rpc", ["RemoveContainer", "StopPodSandbox", "RemovePodSandbox"])
def test_a_removal_that_hangs_holds_up_no_other(on_bench, rpc):
    async def test(bench) -> None:
        pods = [make_pod("a", name=f"pod-{number}", uid=f"uid-{number}") for number in range(3 * REMOVALS)]
        for pod in pods:
            await bench.sync(pod)
            await bench.killer.kill_pod(pod, await bench.status(pod), parent=None)
        collecting = Collecting(bench)
        collecting.fates.removed.update(uid_of(pod) for pod in pods)
        bench.runtime.faults.add(Fault(rpc, Hang(), count=REMOVALS))
        before = len(bench.calls(rpc))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(collecting.gc.collect())
            await bench.sleep(60)
            left = {sandbox.config.metadata.uid for sandbox in bench.runtime.sandboxes()}
            assert len(left) == REMOVALS
            assert not task.done()
        assert len(bench.calls(rpc)) - before == len(pods)

    on_bench(test)


def test_what_is_being_removed_is_not_removed_again(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await crash_four_times(bench, pod)
        collecting = Collecting(bench)
        bench.runtime.faults.add(Fault("RemoveContainer", Hang(), count=None))
        status = await bench.status(pod)
        async with collecting.running():
            for _ in range(3):
                collecting.seen.show(status)
                await bench.sleep(1)
        assert len(bench.calls("RemoveContainer")) == 3

    on_bench(test, CRASHING)


def test_a_job_that_ended_keeps_its_end(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", restart_policy="Never")
        await bench.sync(pod)
        await bench.sleep(2)
        collecting = Collecting(bench)
        async with collecting.running():
            collecting.seen.show(await bench.status(pod))
            await bench.sleep(600)
        assert attempts(bench) == [0]
        assert logs(bench) == ["0.log"]

    on_bench(test, Script(lives=always(runs_for(timedelta(seconds=1)))))
