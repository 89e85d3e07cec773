"""One worker per pod, with steps of the test's own, in virtual time."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.model.causes import CauseId
from klet.model.pods import LONGEST_GRACE, PodUID
from klet.model.reasons import Reason
from klet.model.runtime import PodRuntimeStatus
from klet.model.stopping_pods import StoppingPods
from klet.model.verdicts import Preempt, Reject, Wait
from klet.sync.ledger import WorkerLedger
from klet.sync.requeue import ResyncSettings, StepFailure
from klet.sync.worker_roles import StepResult
from klet.sync.worker_state import PodUpdate, Stage, StatusChange, UpdateKind
from klet.sync.workers import KillTimeout, PodWorkers, kill_patience
from klet.testing.admission import ScriptedAdmission
from klet.testing.builders import make_pod
from klet.testing.loop import EPOCH, run_virtual

RESYNC = timedelta(seconds=60)
CREATE, UPDATE, SYNC, KILL = UpdateKind.CREATE, UpdateKind.UPDATE, UpdateKind.SYNC, UpdateKind.KILL


class Broken(KletError):
    """A failure on purpose."""


@dataclass
class Script:
    """What the steps of one pod do: how long each takes, and what comes of it, in turn; the last one goes on."""

    takes: float = 0
    results: list[StepResult | Exception] = field(default_factory=lambda: [StepResult()])
    terminate_fails: int = 0
    status_fails: int = 0


class Bench:
    """Workers whose steps note when they were called."""

    def __init__(self, clock: LoopClock, group: asyncio.TaskGroup) -> None:
        self.clock = clock
        self.scripts: dict[str, Script] = {}
        self.steps: list[tuple[float, str, str]] = []
        self.pods: list[Pod] = []
        self.graces: list[int | None] = []
        self.finished: list[str] = []
        self.changes: list[StatusChange | None] = []
        self.ledger = WorkerLedger()
        self.stopping_pods = StoppingPods()
        self.journal = MemoryJournal(clock=clock)
        self.admission = ScriptedAdmission()
        self.live = True
        """Whether the runtime runs something of every pod that comes."""
        self.workers = PodWorkers(
            admission=self.admission,
            steps=self,
            statuses=self,
            is_live=lambda _uid: self.live,
            ledger=self.ledger,
            stopping_pods=self.stopping_pods,
            recorder=self.journal,
            clock=clock,
            resync=ResyncSettings(RESYNC, random.Random(1)),
            on_finished=self.finished.append,
        )
        self.task = group.create_task(self.workers.run())

    # The steps of a pod

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult:
        script = self._begin("sync", pod)
        self.pods.append(pod)
        await self.clock.sleep(timedelta(seconds=script.takes))
        result = script.results.pop(0) if len(script.results) > 1 else script.results[0]
        if isinstance(result, Exception):
            raise result
        return result

    async def terminate(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        *,
        grace: int | None,
        change: StatusChange | None,
        is_runtime_only: bool,
        cause: CauseId | None,
    ) -> None:
        script = self._begin("stop-runtime" if is_runtime_only else "stop", pod)
        self.graces.append(grace)
        self.changes.append(change)
        await self.clock.sleep(timedelta(seconds=script.takes))
        if script.terminate_fails:
            script.terminate_fails -= 1
            raise Broken("still running")

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, was_over: bool, cause: CauseId | None) -> None:
        self._begin("finish", pod)

    def mark(self) -> float:
        return self.clock.monotonic()

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus:
        script = self.scripts.setdefault(uid, Script())
        if script.status_fails:
            script.status_fails -= 1
            raise Broken("the runtime is away")
        return PodRuntimeStatus(uid=uid)

    def _begin(self, step: str, pod: Pod) -> Script:
        self.steps.append((round(self.clock.monotonic(), 3), step, pod.metadata.uid))
        return self.scripts.setdefault(pod.metadata.uid, Script())

    # What tests do and ask

    def update(self, kind: UpdateKind, pod: Pod, **more) -> None:
        self.workers.update(PodUpdate(kind=kind, pod=pod, **more))

    async def run_for(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    def times(self, step: str = "sync", uid: str = "uid-1") -> list[float]:
        return [at for at, found, of in self.steps if (found, of) == (step, uid)]

    def order(self) -> list[tuple[str, str]]:
        return [(step, uid) for _, step, uid in self.steps]

    def stage(self, uid: str = "uid-1") -> Stage | None:
        state = self.ledger.get(PodUID(uid))
        return state.stage if state is not None else None

    async def decisions(self) -> list[str]:
        return [cause.finding.decision for cause in await self.journal.find(CauseQuery())]


def on_bench(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            bench = Bench(LoopClock(epoch=EPOCH), group)
            await test(bench)
            bench.task.cancel()

    run_virtual(main())


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def test_a_new_pod_is_synced_at_once_and_again_after_a_while():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod())
        await bench.run_for(200)
        times = bench.times()
        assert times[0] == 0
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps
        assert all(60 <= gap <= 90 for gap in gaps)

    on_bench(test)


def test_the_newest_update_wins_and_runs_right_after_the_step_that_was_running():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(takes=5)
        first, second, third = (make_pod(name) for name in ("a", "b", "c"))
        bench.update(CREATE, first)
        await bench.run_for(1)
        bench.update(UPDATE, second)
        bench.update(UPDATE, third)
        await bench.run_for(20)
        assert bench.times() == [0, 5]
        assert bench.pods == [first, third]

    on_bench(test)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(StepResult(failure=StepFailure.ERROR), id="a step that reports errors"),
        pytest.param(Broken("no"), id="a step that fails"),
        pytest.param(ValueError("a bug"), id="a bug"),
    ],
)
def test_a_failing_step_is_tried_again_after_10_to_15_seconds(failure):
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(results=[failure])
        bench.update(CREATE, make_pod())
        await bench.run_for(100)
        times = bench.times()
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert len(gaps) >= 6
        assert all(10 <= gap <= 15 for gap in gaps)
        assert len(set(gaps)) > 1

    on_bench(test)


def test_the_end_of_a_back_off_is_waited_for():
    async def test(bench: Bench) -> None:
        failed = StepFailure.ERROR
        waits = [StepResult(failure=failed, retry_at=at(7)), StepResult(failure=failed, retry_at=at(27))]
        bench.scripts["uid-1"] = Script(results=[*waits, StepResult()])
        bench.update(CREATE, make_pod())
        await bench.run_for(50)
        assert bench.times() == [0, 7, 27]

    on_bench(test)


def test_a_network_that_is_not_there_is_looked_for_every_second_or_so():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(results=[StepResult(failure=StepFailure.NETWORK_NOT_READY)])
        bench.update(CREATE, make_pod())
        await bench.run_for(30)
        gaps = [later - earlier for earlier, later in pairwise(bench.times())]
        assert all(1 <= gap <= 1.5 for gap in gaps)
        assert len(gaps) >= 20

    on_bench(test)


def test_what_is_due_by_itself_is_looked_at_in_time():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(results=[StepResult(look_at=at(5)), StepResult()])
        bench.update(CREATE, make_pod())
        await bench.run_for(50)
        assert bench.times() == [0, 5]

    on_bench(test)


def test_news_from_the_runtime_wakes_the_worker():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod())
        await bench.run_for(3)
        bench.workers.wake(PodUID("uid-1"))
        bench.workers.wake(PodUID("nobody"))
        await bench.run_for(3)
        assert bench.times() == [0, 3]

    on_bench(test)


def test_a_runtime_that_cannot_be_read_is_a_failing_step():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(status_fails=1)
        bench.update(CREATE, make_pod())
        await bench.run_for(20)
        assert len(bench.times()) == 1
        assert 10 <= bench.times()[0] <= 15
        [reported] = await bench.journal.find(CauseQuery())
        assert reported.finding.decision == "FailedSync"
        assert reported.finding.message == "error determining status: the runtime is away"

    on_bench(test)


def test_a_bug_in_one_pods_step_does_not_stop_the_others():
    async def test(bench: Bench) -> None:
        bench.scripts["bad"] = Script(results=[ZeroDivisionError("a bug")])
        bench.update(CREATE, make_pod(name="bad", uid="bad"))
        bench.update(CREATE, make_pod(name="good", uid="good"))
        await bench.run_for(1)
        bench.update(KILL, make_pod(name="good", uid="good"))
        await bench.run_for(1)
        assert bench.stage("good") is Stage.FINISHED
        assert bench.stage("bad") is Stage.SYNCING
        assert not bench.task.done()

    on_bench(test)


def test_a_hanging_step_of_one_pod_does_not_stop_the_others():
    async def test(bench: Bench) -> None:
        bench.scripts["slow"] = Script(takes=10_000)
        bench.update(CREATE, make_pod(name="slow", uid="slow"))
        bench.update(CREATE, make_pod(name="good", uid="good"))
        await bench.run_for(200)
        assert bench.times(uid="slow") == [0]
        assert len(bench.times(uid="good")) >= 3

    on_bench(test)


def test_the_life_of_a_pod_to_its_end():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(KILL, make_pod(), why="the file is gone")
        await bench.run_for(1)
        assert bench.order() == [(step, "uid-1") for step in ("sync", "stop", "finish")]
        assert bench.graces == [30]
        assert bench.stage() is Stage.FINISHED
        assert bench.finished == ["uid-1"]
        assert await bench.decisions() == ["Terminate", "Stopped", "Finished"]
        await bench.run_for(1000)
        assert len(bench.steps) == 3
        bench.workers.forget(PodUID("uid-1"))
        assert bench.stage() is None

    on_bench(test)


def test_a_pod_whose_work_is_done_is_stopped_with_no_grace_of_its_own():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(results=[StepResult(is_terminal=True)])
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        assert bench.order() == [(step, "uid-1") for step in ("sync", "stop", "finish")]
        assert bench.graces == [None]

    on_bench(test)


def test_a_pod_that_cannot_be_given_what_it_needs_is_rejected_and_stopped():
    async def test(bench: Bench) -> None:
        rejection = Reject(Reason.VOLUME_ATTACHMENT_LIMIT_EXCEEDED, "no more volumes")
        bench.scripts["uid-1"] = Script(results=[StepResult(is_terminal=True, rejection=rejection)])
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        assert bench.admission.rejected == [("uid-1", rejection)]
        assert bench.order() == [(step, "uid-1") for step in ("sync", "stop", "finish")]

    on_bench(test)


def test_a_pod_that_does_not_stop_is_stopped_again():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(terminate_fails=2)
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(KILL, make_pod(), grace=5)
        await bench.run_for(1)
        bench.update(KILL, make_pod(), grace=3)
        await bench.run_for(60)
        assert bench.graces == [5, 3, 3]
        assert bench.times("stop")[:2] == [1, 2]
        assert 10 <= bench.times("stop")[2] - 2 <= 15
        assert bench.stage() is Stage.FINISHED

    on_bench(test)


def test_a_pod_that_was_over_before_it_was_seen_is_only_cleaned_up():
    async def test(bench: Bench) -> None:
        pod = replace(make_pod(), status=PodStatus(phase="Succeeded"))
        bench.live = False
        bench.update(CREATE, pod)
        await bench.run_for(1)
        assert bench.order() == [("finish", "uid-1")]
        assert bench.finished == ["uid-1"]

    on_bench(test)


def test_a_pod_that_only_the_runtime_knows_is_stopped():
    async def test(bench: Bench) -> None:
        bench.update(KILL, make_pod(), is_runtime_only=True)
        await bench.run_for(1)
        assert bench.order() == [("stop-runtime", "uid-1")]
        assert bench.stage() is Stage.FINISHED

    on_bench(test)


def test_the_same_uid_again_while_the_pod_ends_asks_for_a_restart():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(takes=5)
        bench.update(CREATE, make_pod())
        await bench.run_for(6)
        bench.update(KILL, make_pod())
        await bench.run_for(1)
        bench.update(CREATE, make_pod())
        state = bench.ledger.state_of(PodUID("uid-1"))
        assert (state.stage, state.restart_requested) == (Stage.TERMINATING, True)
        await bench.run_for(10)
        assert bench.stage() is Stage.FINISHED
        assert bench.times("sync") == [0]
        bench.workers.forget(PodUID("uid-1"))
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        assert len(bench.times("sync")) == 2
        assert bench.stage() is Stage.SYNCING

    on_bench(test)


def test_a_pod_that_has_not_finished_is_not_forgotten():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod())
        bench.workers.forget(PodUID("uid-1"))
        assert bench.stage() is Stage.SYNCING

    on_bench(test)


def test_a_pod_that_went_before_its_worker_saw_it_is_forgotten_after_that():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, static("2"))
        bench.update(KILL, static("2"))
        assert bench.stage("2") is Stage.FINISHED
        assert not bench.workers.forget(PodUID("2"))
        await bench.run_for(1)
        assert (bench.order(), bench.finished) == ([], ["2"])
        assert bench.workers.forget(PodUID("2"))
        assert bench.ledger.get(PodUID("2")) is None

    on_bench(test)


def test_an_orphan_is_stopped_once():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.workers.orphan(PodUID("uid-1"))
        bench.workers.orphan(PodUID("nobody"))
        await bench.run_for(1)
        assert bench.order() == [(step, "uid-1") for step in ("sync", "stop", "finish")]
        assert bench.graces == [None]
        assert bench.ledger.state_of(PodUID("uid-1")).is_deleted

    on_bench(test)


def test_the_end_of_one_pod_does_not_shorten_the_back_off_of_another():
    async def test(bench: Bench) -> None:
        bench.scripts["bad"] = Script(results=[Broken("no")])
        bench.update(CREATE, make_pod(name="bad", uid="bad"))
        bench.update(CREATE, make_pod(name="good", uid="good"))
        await bench.run_for(1)
        bench.update(KILL, make_pod(name="good", uid="good"))
        await bench.run_for(8)
        assert bench.finished == ["good"]
        assert bench.times(uid="bad") == [0]

    on_bench(test)


def test_a_pod_that_comes_back_waits_until_what_was_left_of_it_is_removed():
    async def test(bench: Bench) -> None:
        with bench.workers.holding_back(PodUID("uid-1")):
            bench.update(CREATE, make_pod())
            bench.update(CREATE, make_pod(name="other", uid="other"))
            await bench.run_for(3)
            assert bench.order() == [("sync", "other")]
        await bench.run_for(1)
        assert bench.times() == [3]

    on_bench(test)


def static(uid: str) -> Pod:
    return make_pod(name="web", uid=uid, source="file")


def test_static_pods_of_one_name_start_one_after_the_other():
    async def test(bench: Bench) -> None:
        for uid in ("2", "3", "4"):
            bench.scripts[uid] = Script(takes=1)
            bench.update(CREATE, static(uid))
        await bench.run_for(5)
        assert bench.order() == [("sync", "2")]
        bench.update(KILL, static("2"))
        await bench.run_for(5)
        assert bench.order() == [("sync", "2"), ("stop", "2"), ("finish", "2"), ("sync", "3")]

    on_bench(test)


def test_a_static_pod_that_is_removed_while_it_waits_is_never_synced():
    async def test(bench: Bench) -> None:
        for uid in ("2", "3", "4"):
            bench.update(CREATE, static(uid))
        await bench.run_for(1)
        bench.update(KILL, static("3"))
        await bench.run_for(1)
        assert bench.stage("3") is Stage.FINISHED
        assert bench.finished == ["3"]
        bench.update(KILL, static("2"))
        await bench.run_for(1)
        assert bench.order() == [("sync", "2"), ("stop", "2"), ("finish", "2"), ("sync", "4")]

    on_bench(test)


def test_an_orphan_that_waits_for_its_place_is_never_synced():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, static("2"))
        bench.update(CREATE, static("3"))
        await bench.run_for(1)
        bench.workers.orphan(PodUID("3"))
        await bench.run_for(1)
        assert bench.order() == [("sync", "2")]
        assert bench.finished == ["3"]

    on_bench(test)


def test_a_static_pod_whose_first_news_is_its_end_is_over_at_once():
    async def test(bench: Bench) -> None:
        bench.update(KILL, static("2"))
        await bench.run_for(1)
        assert bench.steps == []
        assert bench.finished == ["2"]

    on_bench(test)


def test_a_pod_of_the_api_with_the_name_of_a_static_pod_does_not_wait():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, static("2"))
        bench.update(CREATE, make_pod(name="web", uid="3"))
        await bench.run_for(1)
        assert bench.order() == [("sync", "2"), ("sync", "3")]

    on_bench(test)


# Killing and waiting for it


@pytest.mark.parametrize(
    ("grace", "spec", "seconds"),
    [
        pytest.param(None, None, 10, id="nothing said"),
        pytest.param(None, 30, 45, id="the spec's grace and half of it"),
        pytest.param(4, 30, 10, id="not less than ten seconds"),
        pytest.param(21, 30, 31, id="halves are cut off"),
        pytest.param(0, 30, 10, id="no grace at all"),
        pytest.param(None, 2**63 - 1, LONGEST_GRACE * 3 // 2, id="more than any clock can count"),
    ],
)
def test_patience_with_a_kill(grace, spec, seconds):
    pod = make_pod()
    pod = replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=spec))
    assert kill_patience(pod, grace) == timedelta(seconds=seconds)


def test_a_kill_returns_when_the_pod_has_stopped():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(takes=3)
        bench.update(CREATE, make_pod())
        await bench.run_for(5)
        await bench.workers.kill(make_pod(), evict=True, grace=8, why="memory")
        assert bench.clock.monotonic() == 8
        assert bench.graces == [8]
        state = bench.ledger.state_of(PodUID("uid-1"))
        assert (state.is_evicted, state.has_stopped) == (True, True)
        await bench.workers.kill(make_pod())
        assert bench.clock.monotonic() == 8

    on_bench(test)


def test_a_kill_that_takes_too_long_is_reported_and_goes_on():
    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(takes=20)
        bench.update(CREATE, make_pod())
        await bench.run_for(21)
        with pytest.raises(KillTimeout, match="timeout waiting to kill pod"):
            await bench.workers.kill(make_pod(), grace=1)
        assert bench.clock.monotonic() == 31
        assert (await bench.decisions())[-1] == "ExceededGracePeriod"
        await bench.run_for(20)
        assert bench.stage() is Stage.FINISHED

    on_bench(test)


def test_the_last_word_about_the_status_counts():
    def first(status: PodStatus) -> PodStatus:
        return replace(status, reason="First")

    def second(status: PodStatus) -> PodStatus:
        return replace(status, reason="Second")

    async def test(bench: Bench) -> None:
        bench.scripts["uid-1"] = Script(takes=5, terminate_fails=1)
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(KILL, make_pod(), status_change=first)
        bench.update(KILL, make_pod(), status_change=second)
        bench.update(KILL, make_pod())
        await bench.run_for(60)
        assert bench.changes == [second, second]
        assert bench.ledger.state_of(PodUID("uid-1")).status_change is None

    on_bench(test)


def test_a_pod_that_is_to_stop_is_marked_as_stopping_until_it_is_over():
    async def test(bench: Bench) -> None:
        uid = PodUID("uid-1")
        bench.scripts[uid] = Script(takes=5)
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        assert not bench.stopping_pods.is_stopping(uid)
        bench.update(KILL, make_pod())
        assert bench.stopping_pods.is_stopping(uid)
        await bench.run_for(20)
        assert bench.stage() is Stage.FINISHED
        bench.update(KILL, make_pod())
        assert not bench.stopping_pods.is_stopping(uid)

    on_bench(test)


# Admission


REFUSED = Reject(Reason.NODE_PORTS, "no port is free")


def test_a_new_pod_is_admitted_before_anything_is_done_for_it():
    async def test(bench: Bench) -> None:
        bench.live = False
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        assert bench.admission.asked == ["uid-1"]
        assert bench.admission.taken_over == []
        assert bench.order() == [("sync", "uid-1")]

    on_bench(test)


def test_a_pod_that_runs_already_is_not_asked_about():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        assert bench.admission.asked == []
        assert bench.admission.taken_over == ["uid-1"]
        assert bench.order() == [("sync", "uid-1")]

    on_bench(test)


def test_a_rejected_pod_is_finished_and_nothing_is_done_for_it():
    async def test(bench: Bench) -> None:
        bench.live = False
        bench.admission.verdicts["uid-1"] = [REFUSED]
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(UPDATE, make_pod())
        await bench.run_for(1)
        assert bench.admission.rejected == [("uid-1", REFUSED)]
        assert (bench.stage(), bench.order(), bench.finished) == (Stage.FINISHED, [], ["uid-1"])
        assert bench.ledger.state_of("uid-1").is_rejected

    on_bench(test)


def test_pods_are_admitted_in_the_order_in_which_they_came():
    async def test(bench: Bench) -> None:
        bench.live = False
        for number in range(1, 6):
            bench.update(CREATE, make_pod(uid=f"uid-{number}"))
        await bench.run_for(1)
        assert bench.admission.asked == [f"uid-{number}" for number in range(1, 6)]

    on_bench(test)


def test_a_pod_that_waits_is_asked_about_again_and_delays_no_other():
    async def test(bench: Bench) -> None:
        bench.live = False
        wait = Wait("the plugin is not there yet")
        bench.admission.verdicts["uid-1"] = [wait]
        bench.update(CREATE, make_pod())
        bench.update(CREATE, make_pod(uid="uid-2"))
        await bench.run_for(1)
        assert (bench.stage(), bench.order()) == (Stage.ADMITTING, [("sync", "uid-2")])
        assert bench.admission.waits == [("uid-1", wait)]
        await bench.run_for(20)
        assert bench.admission.asked == ["uid-1", "uid-2", "uid-1"]
        assert bench.order() == [("sync", "uid-2"), ("sync", "uid-1")]

    on_bench(test)


def test_a_pod_that_waits_is_asked_about_again_when_another_has_gone():
    async def test(bench: Bench) -> None:
        bench.update(CREATE, make_pod(uid="uid-2"))
        bench.live = False
        bench.admission.verdicts["uid-1"] = [Wait("no room")]
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(KILL, make_pod(uid="uid-2"))
        await bench.run_for(1)
        assert bench.stage() is Stage.SYNCING

    on_bench(test)


def test_victims_have_stopped_before_the_pod_that_needs_their_room_is_asked_about_again():
    async def test(bench: Bench) -> None:
        victim = make_pod(uid="uid-2")
        bench.scripts["uid-2"] = Script(takes=3)
        bench.update(CREATE, victim)
        await bench.run_for(4)
        bench.live = False
        bench.admission.verdicts["uid-1"] = [Preempt((victim,), "a critical pod needs the room", resource="cpu")]
        bench.update(CREATE, make_pod())
        await bench.run_for(2)
        assert (bench.stage(), bench.admission.asked) == (Stage.ADMITTING, ["uid-1"])
        await bench.run_for(2)
        assert bench.ledger.state_of("uid-2").is_evicted
        assert bench.admission.asked == ["uid-1", "uid-1"]
        assert bench.order()[-2:] == [("finish", "uid-2"), ("sync", "uid-1")]
        assert bench.admission.preempted == [("uid-2", "cpu")]

    on_bench(test)


def test_a_pod_that_is_stopped_before_it_was_admitted_is_not_started():
    async def test(bench: Bench) -> None:
        bench.live = False
        bench.admission.verdicts["uid-1"] = [Wait("no room")] * 5
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(KILL, make_pod())
        await bench.run_for(1)
        assert bench.order() == [("stop", "uid-1"), ("finish", "uid-1")]
        assert bench.stage() is Stage.FINISHED

    on_bench(test)


def test_a_pod_that_only_the_runtime_knows_is_given_nothing():
    async def test(bench: Bench) -> None:
        bench.workers.update(PodUpdate(kind=KILL, pod=make_pod(), is_runtime_only=True))
        await bench.run_for(1)
        assert bench.admission.taken_over == []

    on_bench(test)


def test_admission_is_notified_of_changes_of_a_pod_that_it_admitted():
    async def test(bench: Bench) -> None:
        bench.live = False
        bench.admission.verdicts["uid-1"] = [Wait("for a plugin")]
        pod = make_pod()
        waiting, admitted, changed = (
            replace(pod, metadata=replace(pod.metadata, generation=number)) for number in range(1, 4)
        )
        bench.update(CREATE, make_pod())
        await bench.run_for(1)
        bench.update(UPDATE, waiting)
        await bench.run_for(20)
        bench.update(UPDATE, admitted)
        bench.update(UPDATE, changed)
        bench.update(KILL, changed)
        bench.update(UPDATE, make_pod())
        assert bench.admission.changes == [(waiting, admitted), (admitted, changed), (changed, changed)]

    on_bench(test)
