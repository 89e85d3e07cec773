"""What the sync loop hands on, and in which order."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import DEFAULT_LIMIT
from klet.aio.clock import LoopClock
from klet.allocation.book import AllocationBook
from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod, PodCondition, PodReadinessGate, PodStatus
from klet.api.times import Time
from klet.journal.memory import MemoryJournal
from klet.model.pods import PodUID
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import ContainerId, PodRuntimeStatus
from klet.model.stopping_pods import StoppingPods
from klet.model.verbosity import STEADY, level_of
from klet.pleg.cache import Reading, RuntimeCache
from klet.pods.store import PodStore
from klet.probes.results import ProbeResults
from klet.sources.merge import PodChangeKind, PodChanges
from klet.status.board import StatusBoard
from klet.sync.ledger import WorkerLedger
from klet.sync.loop import SyncLoop
from klet.sync.loop_monitor import SyncLoopMonitor
from klet.sync.pod_status import PodStatuses, StartFailures, StatusFacts
from klet.sync.probe_sync import ProbeSync
from klet.sync.requeue import ResyncSettings
from klet.sync.worker_roles import StepResult
from klet.sync.workers import PodWorkers
from klet.testing.admission import ScriptedAdmission
from klet.testing.builders import make_pod, make_sandbox
from klet.testing.loop import EPOCH, run_virtual


class Bench:
    """A loop between sources and workers whose steps only note that they were called."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.queue: asyncio.Queue[PodChanges] = asyncio.Queue()
        self.well = asyncio.Event()
        self.synced: list[str] = []
        self.stopped: list[str] = []
        self.is_ready = True
        self.counts_housekeeping = False
        self.pods, self.ledger, self.results = PodStore(), WorkerLedger(), ProbeResults()
        self.cache = RuntimeCache()
        self.order: list[str] = []
        """What was done to which pod."""
        self.journal = journal = MemoryJournal(clock=clock)
        self.workers = PodWorkers(
            admission=ScriptedAdmission(),
            steps=self,
            statuses=self,
            is_live=self.cache.is_live,
            ledger=self.ledger,
            stopping_pods=StoppingPods(),
            recorder=journal,
            clock=clock,
            resync=ResyncSettings(timedelta(minutes=1), random.Random(1)),
            on_finished=lambda _uid: None,
        )
        statuses = PodStatuses(
            board=StatusBoard(clock=clock),
            allocations=AllocationBook(),
            failures=StartFailures(),
            probes=self.results,
            probers=self,
            recorder=journal,
            facts=StatusFacts("containerd", EPOCH),
            clock=clock,
        )
        self.loop = SyncLoop(
            changes=self,
            pods=self.pods,
            workers=self.workers,
            cache=self.cache,
            probe_sync=ProbeSync(probes=self.results, pods=self.pods, statuses=statuses, workers=self.workers),
            monitor=SyncLoopMonitor(until_runtime_well=self.well.wait, clock=clock, resync=timedelta(minutes=1)),
            housekeeping=lambda: self.order.append("housekeeping") if self.counts_housekeeping else None,
            recorder=journal,
        )

    # Sources

    async def next_change(self) -> PodChanges:
        return await self.queue.get()

    def mark_handled(self, source: str) -> None:
        pass

    def all_ready(self) -> bool:
        return self.is_ready

    # Steps, statuses, probers

    async def sync(self, pod: Pod, status: PodRuntimeStatus, **_more: object) -> StepResult:
        self.synced.append(pod.metadata.uid)
        self.order.append(f"sync {pod.metadata.uid}")
        return StepResult()

    async def terminate(self, pod: Pod, status: PodRuntimeStatus, **_more: object) -> None:
        await self.clock.sleep(timedelta(seconds=5))
        self.stopped.append(pod.metadata.uid)
        self.order.append(f"stop {pod.metadata.uid}")

    async def finish(self, pod: Pod, status: PodRuntimeStatus, **_more: object) -> None:
        pass

    def mark(self) -> float:
        return self.clock.monotonic()

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus:
        return PodRuntimeStatus(uid=uid)

    async def read_now(self, uid: PodUID) -> PodRuntimeStatus:
        return PodRuntimeStatus(uid=uid)

    def workers_of(self, uid: PodUID) -> frozenset[tuple[str, ProbeKind]]:
        return frozenset()

    # What tests do

    async def send(self, kind: PodChangeKind, *pods: Pod) -> None:
        self.queue.put_nowait(PodChanges(source="api", kind=kind, pods=pods))
        await self.clock.sleep(timedelta(milliseconds=1))


def on_bench(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench(LoopClock(epoch=EPOCH))
        bench.well.set()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(bench.workers.run()), group.create_task(bench.loop.run())]
            await test(bench)
            for task in tasks:
                task.cancel()

    run_virtual(main())


def aged(uid: str, seconds: int | None) -> Pod:
    pod = make_pod("main", uid=uid, name=uid)
    created = None if seconds is None else Time.of(EPOCH - timedelta(seconds=seconds))
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=created))


def test_the_oldest_pods_come_first():
    async def test(bench: Bench) -> None:
        await bench.send(PodChangeKind.ADD, aged("young", 1), aged("old", 100), aged("static", None))
        assert bench.synced == ["static", "old", "young"]

    on_bench(test)


def test_nothing_is_taken_in_while_the_runtime_is_not_well():
    async def test(bench: Bench) -> None:
        bench.well.clear()
        await bench.send(PodChangeKind.ADD, make_pod())
        assert bench.pods.all() == ()
        bench.well.set()
        await bench.clock.sleep(timedelta(milliseconds=1))
        assert bench.synced == ["uid-1"]

    on_bench(test)


@pytest.mark.parametrize(
    ("is_ready", "stopped"),
    [
        pytest.param(True, ["uid-1"], id="it is stopped"),
        pytest.param(False, [], id="not before all sources were seen: housekeeping does it then"),
    ],
)
def test_a_pod_that_is_removed(is_ready, stopped):
    async def test(bench: Bench) -> None:
        bench.is_ready = is_ready
        await bench.send(PodChangeKind.ADD, make_pod())
        await bench.send(PodChangeKind.REMOVE, make_pod())
        await bench.clock.sleep(timedelta(seconds=10))
        assert bench.stopped == stopped
        assert bench.pods.all() == ()

    on_bench(test)


@pytest.mark.parametrize(
    ("kind", "result", "synced"),
    [
        pytest.param(ProbeKind.LIVENESS, ProbeResult.FAILURE, 2, id="a container that does not live is looked at"),
        pytest.param(ProbeKind.LIVENESS, ProbeResult.SUCCESS, 1, id="one that lives is not"),
        pytest.param(ProbeKind.READINESS, ProbeResult.SUCCESS, 2, id="ready"),
        pytest.param(ProbeKind.READINESS, ProbeResult.FAILURE, 2, id="not ready"),
        pytest.param(ProbeKind.STARTUP, ProbeResult.SUCCESS, 2, id="started"),
    ],
)
def test_answers_of_probes(kind, result, synced):
    async def test(bench: Bench) -> None:
        await bench.send(PodChangeKind.ADD, make_pod())
        bench.results.put(PodUID("uid-1"), ProbeKey(ContainerId("c"), kind), result)
        bench.results.put(PodUID("nobody"), ProbeKey(ContainerId("d"), kind), result)
        await bench.clock.sleep(timedelta(milliseconds=1))
        assert bench.synced == ["uid-1"] * synced

    on_bench(test)


def left(uid: str, *, name: str = "pod", source: str = "file", ready: bool = True) -> PodRuntimeStatus:
    """What an previous run of the agent left in the runtime."""
    sandbox = replace(make_sandbox(ready=ready), source=source)
    return PodRuntimeStatus(uid=PodUID(uid), name=name, namespace="default", sandboxes=(sandbox,))


@pytest.mark.parametrize(
    ("old", "source", "order"),
    [
        pytest.param(left("old"), "file", ["stop old", "sync new"], id="it is stopped first"),
        pytest.param(left("new"), "file", ["sync new"], id="it is the pod itself"),
        pytest.param(left("old", ready=False), "file", ["sync new"], id="it is over"),
        pytest.param(left("old", name="other"), "file", ["sync new"], id="it has another name"),
        pytest.param(left("old", source="http"), "file", ["sync new"], id="another source may still have it"),
        pytest.param(left("old", source="api"), "api", ["sync new"], id="pods of the API have a name of their own"),
        pytest.param(left("old", source=""), "file", ["sync new"], id="it is not known whose it is"),
    ],
)
def test_a_new_static_pod_while_the_runtime_has_one_of_that_name(old, source, order):
    async def test(bench: Bench) -> None:
        bench.is_ready = False
        bench.cache.put(Reading(old, 0.0))
        await bench.send(PodChangeKind.ADD, make_pod("main", uid="new", source=source))
        await bench.clock.sleep(timedelta(seconds=10))
        assert bench.order == order

    on_bench(test)


def gated(gate: str, ready: str, message: str = "") -> Pod:
    pod = make_pod("main")
    conditions = (
        PodCondition(type="Ready", status=ready, message=message),
        PodCondition(type="example.com/gate", status=gate),
    )
    spec = replace(pod.spec, readiness_gates=(PodReadinessGate(condition_type="example.com/gate"),))
    containers = (ContainerStatus(name="main", ready=True),)
    return replace(
        pod, spec=spec, status=PodStatus(phase="Running", conditions=conditions, container_statuses=containers)
    )


CLOSED = 'the status of pod readiness gate "example.com/gate" is not "True", but False'


@pytest.mark.parametrize(
    ("pod", "synced"),
    [
        pytest.param(make_pod(), 1, id="a pod without gates"),
        pytest.param(gated("True", "True"), 1, id="a gate that is open, as it is reported"),
        pytest.param(gated("False", "False", CLOSED), 1, id="a gate that is closed, as it is reported"),
        pytest.param(gated("True", "False", CLOSED), 2, id="a gate that was opened"),
        pytest.param(gated("False", "True"), 2, id="a gate that was closed"),
        pytest.param(gated("False", "False", "other"), 2, id="a gate with another reason"),
    ],
)
def test_a_pod_of_which_only_the_status_changed(pod, synced):
    async def test(bench: Bench) -> None:
        await bench.send(PodChangeKind.ADD, make_pod())
        await bench.send(PodChangeKind.RECONCILE, pod)
        assert len(bench.synced) == synced
        assert bench.pods.get(PodUID("uid-1")) is pod

    on_bench(test)


@pytest.mark.parametrize(
    ("kind", "is_ready", "asked"),
    [
        pytest.param(PodChangeKind.ADD, True, 0, id="a new pod leaves nothing behind"),
        pytest.param(PodChangeKind.ADD, False, 1, id="the first sight of a source may show orphans"),
        pytest.param(PodChangeKind.RECONCILE, True, 0, id="the echo of a status"),
        pytest.param(PodChangeKind.REMOVE, True, 1, id="a pod that goes"),
    ],
)
def test_when_housekeeping_is_asked_for(kind, is_ready, asked):
    async def test(bench: Bench) -> None:
        bench.is_ready = is_ready
        bench.counts_housekeeping = True
        await bench.send(kind, make_pod())
        assert bench.order.count("housekeeping") == asked

    on_bench(test)


@pytest.mark.parametrize(
    ("is_there", "reported"),
    [
        pytest.param(False, ("source api has a new pod", "admit and start it"), id="a pod that is new"),
        pytest.param(
            True,
            ("source api has the pod, and the runtime has it from before", "take it over as it is"),
            id="a pod that an previous run of the agent has started",
        ),
    ],
)
def test_what_is_recorded_of_a_pod_that_comes(is_there, reported):
    async def test(bench: Bench) -> None:
        if is_there:
            status = PodRuntimeStatus(uid=PodUID("uid-1"), sandboxes=(make_sandbox(),))
            bench.cache.put(Reading(status, read_at=0))
        await bench.send(PodChangeKind.ADD, make_pod())
        (added,) = [cause.finding for cause in bench.journal.all() if cause.finding.decision == "PodAdded"]
        assert (added.message, added.next) == reported

    on_bench(test)


def test_after_dropped_changes_of_the_runtime_every_worker_looks():
    async def test(bench: Bench) -> None:
        await bench.send(PodChangeKind.ADD, make_pod())
        bench.synced.clear()
        for uid in ("uid-1", *(f"other-{number}" for number in range(DEFAULT_LIMIT))):
            bench.cache.put(Reading(PodRuntimeStatus(uid=PodUID(uid)), bench.clock.monotonic()))
        await bench.clock.sleep(timedelta(milliseconds=1))
        assert bench.synced == ["uid-1"]

    on_bench(test)


def test_changes_of_sources_are_logged_in_upstreams_words(caplog):
    caplog.set_level(level_of(4), logger="klet.sync.loop")

    async def scenario(bench: Bench) -> None:
        bench.well.set()
        pod = make_pod(name="web", uid="u-1")
        for kind in (PodChangeKind.ADD, PodChangeKind.RECONCILE, PodChangeKind.REMOVE):
            bench.queue.put_nowait(PodChanges(kind=kind, source="file", pods=(pod,)))
        bench.queue.put_nowait(PodChanges(kind=PodChangeKind.ADD, source="api"))
        await bench.clock.sleep(timedelta(seconds=1))

    on_bench(scenario)
    lines = [(each.levelno, each.message, each.source, each.pods) for each in caplog.records]
    # Statuses that come back are many: they are only traced. An empty ADD says nothing of a pod.
    assert lines == [
        (STEADY, "SyncLoop ADD", "file", ["default/web"]),
        (STEADY, "SyncLoop REMOVE", "file", ["default/web"]),
    ]
