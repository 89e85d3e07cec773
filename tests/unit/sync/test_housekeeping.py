"""Cleaning up after pods that no source wants, with steps and leftovers of the test's own, in virtual time."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.pods import PodUID, is_static, uid_of
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.model.stopping_pods import StoppingPods
from klet.pleg.cache import Reading, RuntimeCache
from klet.pods.store import PodStore
from klet.sync.housekeeping import Housekeeping, HousekeepingTrigger, PodMemories, StuckRemovals, synthetic_pod
from klet.sync.ledger import WorkerLedger
from klet.sync.metrics import register_housekeeping
from klet.sync.requeue import ResyncSettings
from klet.sync.worker_roles import StepResult
from klet.sync.worker_state import PodUpdate, Stage, UpdateKind
from klet.sync.workers import PodWorkers
from klet.testing.admission import ScriptedAdmission
from klet.testing.builders import make_pod, make_record, make_sandbox, make_status
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
POD = make_pod("main")
LIVE = make_status(POD, make_record(POD, "main"))
DEAD = make_status(POD, make_record(POD, "main", RuntimeContainerState.EXITED), sandboxes=[make_sandbox(ready=False)])


class Bench:
    """Real boards and workers; steps, statuses and leftovers only note what is asked of them."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.pods, self.ledger, self.cache = PodStore(), WorkerLedger(), RuntimeCache()
        self.steps: list[tuple[str, str]] = []
        self.removed: list[str] = []
        self.forgotten: list[str] = []
        self.remembered: set[PodUID] = set()
        self.statuses: dict[PodUID, PodStatus] = {}
        self.stops_fail = 0
        self.on_disk: set[PodUID] = set()
        self.removal_takes = 0.0
        self.removal_fails = 0
        self.hangs: set[PodUID] = set()
        self.looking_fails = 0
        self.while_looking: Callable[[], None] = lambda: None
        self.sources_ready = True
        self.trigger = HousekeepingTrigger(sources_ready=lambda: self.sources_ready, clock=clock)
        self.workers = PodWorkers(
            admission=ScriptedAdmission(),
            steps=self,
            statuses=self,
            is_live=self.cache.is_live,
            ledger=self.ledger,
            stopping_pods=StoppingPods(),
            recorder=MemoryJournal(clock=clock),
            clock=clock,
            resync=ResyncSettings(timedelta(seconds=60), random.Random(1)),
            on_finished=self.trigger.finished,
        )
        self.housekeeping = Housekeeping(
            metrics=register_housekeeping(MetricRegistry()),
            pods=self.pods,
            ledger=self.ledger,
            workers=self.workers,
            cache=self.cache,
            memories=PodMemories(
                forget=(self.forget,), remembered=lambda: self.remembered, status_of=self.statuses.get
            ),
            leftovers=self,
            trigger=self.trigger,
            clock=clock,
        )

    # Steps and statuses

    async def sync(self, pod: Pod, status: PodRuntimeStatus, **_more: object) -> StepResult:
        self.steps.append(("sync", pod.metadata.uid))
        return StepResult()

    async def terminate(self, pod: Pod, status: PodRuntimeStatus, *, is_runtime_only: bool, **_more: object) -> None:
        self.steps.append(("stop-runtime" if is_runtime_only else "stop", pod.metadata.uid))
        if self.stops_fail:
            self.stops_fail -= 1
            raise KletError("still running")
        self.cache.put(Reading(DEAD, self.clock.monotonic()))

    async def finish(self, pod: Pod, status: PodRuntimeStatus, **_more: object) -> None:
        self.steps.append(("finish", pod.metadata.uid))

    def mark(self) -> float:
        return self.clock.monotonic()

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus:
        return PodRuntimeStatus(uid=uid)

    def forget(self, uid: PodUID) -> None:
        self.forgotten.append(uid)

    # Leftovers

    async def found(self, known: frozenset[PodUID]) -> frozenset[PodUID]:
        if self.looking_fails:
            self.looking_fails -= 1
            raise KletError("cannot list /pods")
        found = frozenset(self.on_disk - known)
        self.while_looking()
        return found

    async def remove(self, uid: PodUID, status: PodRuntimeStatus | None) -> None:
        await self.sleep(1_000_000 if uid in self.hangs else self.removal_takes)
        if self.removal_fails:
            self.removal_fails -= 1
            raise KletError("it is busy")
        self.removed.append(uid)
        self.on_disk.discard(uid)

    # What tests do

    def add(self, pod: Pod) -> None:
        self.pods.put(pod)
        self.workers.update(PodUpdate(kind=UpdateKind.CREATE, pod=pod))

    def show(self, status: PodRuntimeStatus) -> None:
        self.cache.put(Reading(status, self.clock.monotonic()))

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))


def on_bench(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench(LoopClock(epoch=EPOCH))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(bench.workers.run()), group.create_task(bench.housekeeping.run())]
            await test(bench)
            for task in tasks:
                task.cancel()

    run_virtual(main())


def test_what_runs_and_nobody_knows_is_stopped_and_then_removed():
    async def test(bench: Bench) -> None:
        bench.show(LIVE)
        await bench.sleep(2.1)
        assert bench.steps == [("stop-runtime", UID)]
        assert bench.removed == [UID]
        assert bench.cache.get(UID) is None
        assert bench.ledger.get(UID) is None

    on_bench(test)


def test_what_is_dead_and_nobody_knows_is_removed():
    async def test(bench: Bench) -> None:
        bench.show(DEAD)
        await bench.sleep(2.1)
        assert (bench.steps, bench.removed) == ([], [UID])

    on_bench(test)


def test_nothing_is_an_orphan_before_all_sources_were_seen():
    async def test(bench: Bench) -> None:
        bench.sources_ready = False
        bench.show(LIVE)
        bench.on_disk.add(PodUID("old"))
        await bench.sleep(10)
        assert (bench.steps, bench.removed) == ([], [])

    on_bench(test)


def test_a_wanted_pod_is_left_alone():
    async def test(bench: Bench) -> None:
        bench.add(POD)
        bench.show(DEAD)
        bench.on_disk.add(UID)
        await bench.sleep(10)
        assert bench.removed == []

    on_bench(test)


def test_a_pod_that_no_source_has_any_more_is_stopped_finished_and_removed_at_once():
    async def test(bench: Bench) -> None:
        bench.add(POD)
        await bench.sleep(1)
        bench.pods.remove(UID)
        bench.trigger.ask()
        await bench.sleep(0.1)
        assert [step for step, _ in bench.steps] == ["sync", "stop", "finish"]
        assert (bench.removed, bench.forgotten) == ([UID], [UID])

    on_bench(test)


def test_a_pod_that_came_back_while_it_ended_is_started_again():
    async def test(bench: Bench) -> None:
        bench.add(POD)
        await bench.sleep(1)
        bench.workers.update(PodUpdate(kind=UpdateKind.KILL, pod=POD))
        bench.workers.update(PodUpdate(kind=UpdateKind.CREATE, pod=POD))
        await bench.sleep(0.1)
        assert [step for step, _ in bench.steps] == ["sync", "stop", "finish", "sync"]
        assert bench.removed == []
        assert bench.ledger.state_of(UID).stage is Stage.SYNCING

    on_bench(test)


def test_directories_of_nobody_are_removed():
    async def test(bench: Bench) -> None:
        bench.on_disk.add(PodUID("old"))
        await bench.sleep(2.1)
        assert bench.removed == ["old"]

    on_bench(test)


def test_a_pod_that_came_during_the_look_at_the_disk_is_no_leftover():
    async def test(bench: Bench) -> None:
        bench.on_disk.add(UID)
        bench.while_looking = lambda: bench.add(POD)
        await bench.sleep(2.1)
        assert bench.removed == []

    on_bench(test)


def test_a_pod_that_comes_back_while_it_is_removed_waits_for_the_end_of_that():
    async def test(bench: Bench) -> None:
        bench.show(DEAD)
        bench.removal_takes = 1
        await bench.sleep(2.5)
        bench.add(POD)
        await bench.sleep(0.4)
        assert (bench.steps, bench.removed) == ([], [])
        await bench.sleep(0.2)
        assert (bench.steps, bench.removed) == ([("sync", UID)], [UID])

    on_bench(test)


def test_a_removal_that_fails_is_tried_again():
    async def test(bench: Bench) -> None:
        bench.show(DEAD)
        bench.removal_fails = 2
        await bench.sleep(6.1)
        assert bench.removed == [UID]

    on_bench(test)


def test_removals_that_fail_are_one_line_for_each_pass(caplog):
    """Somebody has put 2,000 links into `pods/`."""

    async def test(bench: Bench) -> None:
        bench.on_disk |= {PodUID(f"link-{number:04}") for number in range(2000)}
        bench.removal_fails = 1_000_000
        await bench.sleep(20.1)

    with caplog.at_level(logging.WARNING):
        on_bench(test)
    assert len(caplog.records) == 10
    for record in caplog.records:
        assert (record.pods, record.uid, record.error) == (2000, "link-0000", "it is busy")


def test_a_removal_that_hangs_hides_no_other_that_fails(caplog):
    async def test(bench: Bench) -> None:
        bench.on_disk |= {PodUID("fails"), PodUID("hangs")}
        bench.removal_fails = 1_000_000
        bench.hangs.add(PodUID("hangs"))
        await bench.sleep(4.1)
        assert [(record.pods, record.uid) for record in caplog.records] == [(1, "fails")]

    with caplog.at_level(logging.WARNING):
        on_bench(test)


def test_a_look_that_fails_ends_the_pass_and_not_the_agent():
    async def test(bench: Bench) -> None:
        bench.on_disk.add(PodUID("old"))
        bench.looking_fails = 2
        await bench.sleep(6.1)
        assert bench.removed == ["old"]

    on_bench(test)


def test_a_pod_made_from_what_the_runtime_knows():
    pod = synthetic_pod(LIVE)
    assert uid_of(pod) == UID
    assert (pod.metadata.name, pod.metadata.namespace) == ("pod", "default")
    assert [container.name for container in pod.spec.containers] == ["main"]
    assert pod.metadata.creation_timestamp == LIVE.sandboxes[0].created_at
    assert not is_static(pod)


def test_a_static_pod_made_from_what_the_runtime_knows_is_static():
    sandbox = replace(LIVE.sandboxes[0], source="file")
    status = replace(LIVE, sandboxes=(sandbox,))
    assert is_static(synthetic_pod(status))


def test_a_finished_pod_that_is_still_wanted_stays_finished():
    async def test(bench: Bench) -> None:
        bench.add(POD)
        await bench.sleep(1)
        bench.workers.update(PodUpdate(kind=UpdateKind.KILL, pod=POD))
        await bench.sleep(10)
        assert bench.ledger.state_of(UID).stage is Stage.FINISHED
        assert [step for step, _ in bench.steps] == ["sync", "stop", "finish"]

    on_bench(test)


def test_pods_that_went_while_no_agent_ran_are_forgotten_once_all_sources_were_seen():
    async def test(bench: Bench) -> None:
        bench.remembered = {UID, PodUID("gone")}
        bench.sources_ready = False
        bench.add(POD)
        await bench.sleep(10)
        assert bench.forgotten == []
        bench.sources_ready = True
        await bench.sleep(2.1)
        assert set(bench.forgotten) == {"gone"}

    on_bench(test)


# What housekeeping finds, and what comes of it

STATIC = make_pod("main", source="file")
DELETED = make_pod("main", deleted=True)


def phase(pod: Pod, phase: str) -> Pod:
    return replace(pod, status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("pod", "reported", "in_runtime", "steps"),
    [
        pytest.param(POD, "", None, ["sync"], id="a pod without a worker is started"),
        pytest.param(POD, "Running", LIVE, ["sync"], id="also if it runs"),
        pytest.param(phase(POD, "Succeeded"), "", None, [], id="a pod that is over is not"),
        pytest.param(POD, "Failed", None, [], id="nor one that was rejected"),
        pytest.param(phase(DELETED, "Failed"), "", None, ["finish"], id="a deleted pod that is over is cleaned up"),
        pytest.param(DELETED, "Failed", None, ["stop", "finish"], id="so is one that was rejected and then deleted"),
        pytest.param(phase(DELETED, "Failed"), "", LIVE, [], id="but not while something of it runs"),
    ],
)
def test_a_wanted_pod_without_a_worker(pod, reported, in_runtime, steps):
    async def test(bench: Bench) -> None:
        bench.pods.put(pod)
        if reported:
            bench.statuses[UID] = PodStatus(phase=reported)
        if in_runtime is not None:
            bench.show(in_runtime)
        await bench.sleep(2.1)
        assert [step for step, _ in bench.steps] == steps

    on_bench(test)


def waits_behind(bench: Bench) -> None:
    """Another static pod of the same name runs; this one waits for its place."""
    bench.add(make_pod("main", uid="first", source="file"))
    bench.add(STATIC)


def test_a_pod_that_waited_and_is_gone_was_never_there():
    async def test(bench: Bench) -> None:
        waits_behind(bench)
        await bench.sleep(1)
        bench.pods.remove(UID)
        await bench.sleep(2)
        assert bench.steps == [("sync", "first")]
        assert bench.ledger.get(UID) is None

    on_bench(test)


def test_a_pod_that_waited_and_is_gone_but_runs_is_stopped_as_the_runtimes():
    async def test(bench: Bench) -> None:
        waits_behind(bench)
        bench.show(LIVE)
        await bench.sleep(1)
        bench.pods.remove(UID)
        await bench.sleep(3)
        assert bench.steps == [("sync", "first"), ("stop-runtime", UID)]

    on_bench(test)


def test_a_pod_that_waits_is_left_waiting():
    async def test(bench: Bench) -> None:
        waits_behind(bench)
        await bench.sleep(10)
        assert bench.steps == [("sync", "first")]

    on_bench(test)


def test_an_orphan_that_does_not_stop_is_tried_again_at_each_pass():
    async def test(bench: Bench) -> None:
        bench.add(POD)
        await bench.sleep(1)
        bench.stops_fail = 3
        bench.pods.remove(UID)
        await bench.sleep(8)
        assert [step for step, _ in bench.steps] == ["sync", "stop", "stop", "stop", "stop", "finish"]

    on_bench(test)


def test_a_wanted_pod_that_does_not_stop_waits_for_its_back_off():
    async def test(bench: Bench) -> None:
        bench.add(POD)
        await bench.sleep(1)
        bench.stops_fail = 3
        bench.workers.update(PodUpdate(kind=UpdateKind.KILL, pod=POD))
        await bench.sleep(9)
        assert [step for step, _ in bench.steps] == ["sync", "stop"]

    on_bench(test)


def test_what_the_runtime_runs_and_does_not_stop_is_tried_again():
    async def test(bench: Bench) -> None:
        bench.stops_fail = 2
        bench.show(LIVE)
        await bench.sleep(10)
        assert [step for step, _ in bench.steps] == ["stop-runtime"] * 3

    on_bench(test)


def test_a_removal_that_stays_stuck_is_logged_when_it_begins_and_when_it_changes(caplog):
    stuck = StuckRemovals()

    def one_pass(*errors: str) -> int:
        caplog.clear()
        for error in errors:
            stuck.note(UID, KletError(error))
        stuck.log()
        return len(caplog.records)

    assert [one_pass("busy"), one_pass("busy"), one_pass("gone"), one_pass(), one_pass("gone")] == [1, 0, 1, 0, 1]
