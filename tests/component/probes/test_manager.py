"""The probe manager with real boards and statuses, in virtual time; only the containers' answers are scripted."""

import asyncio
import random
from collections import defaultdict
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from klet.aio.broadcast import DEFAULT_LIMIT
from klet.aio.clock import LoopClock
from klet.api.handlers import ExecAction, Probe
from klet.api.pod import PodCondition, PodStatus
from klet.api.times import Time
from klet.journal.memory import MemoryJournal
from klet.model.allocation import PodResources, desired_allocation
from klet.model.pods import PodUID
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import RuntimeContainerState
from klet.probes.handler import ProbeAnswer, ProbeOutcome
from klet.probes.manager import ProbeManager
from klet.probes.periods import ANNOTATION
from klet.probes.results import ProbeResults
from klet.runtime.restart import comes_back, restarts_after
from klet.status.board import StatusBoard
from klet.status.generate import PodStatusInputs, generate_status
from klet.testing.builders import make_container, make_pod, make_record, make_status
from klet.testing.loop import EPOCH, run_virtual

STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS
UID = PodUID("uid-1")
LONG_AGO = EPOCH - timedelta(hours=1)
BAD = ProbeOutcome(ProbeAnswer.FAILURE, "no")


def probe(kind, *, period=10, delay=0, failures=3, successes=1):
    """A probe that the scripted prober knows by its command."""
    return Probe(
        exec=ExecAction(command=(str(kind),)),
        period_seconds=period,
        initial_delay_seconds=delay,
        failure_threshold=failures,
        success_threshold=successes,
        timeout_seconds=1,
    )


def probed(name="main", **kinds):
    made = {f"{kind}_probe": probe(ProbeKind(kind), **given) for kind, given in kinds.items()}
    return change(make_container(name), **made)


class ScriptedProber:
    """Answers by container and probe; notes when it was asked."""

    def __init__(self):
        self.asked = defaultdict(list)
        self.forgotten = []
        self.answers = {}
        self.takes = {}
        self.running = 0

    def prepare(self, target):
        return lambda: self._answer(target)

    def forget(self, pod, container, kind):
        self.forgotten.append((pod.metadata.name, container, kind))

    async def _answer(self, target):
        (kind,) = target.probe.exec.command
        key = (target.container.name, ProbeKind(kind))
        self.asked[key].append(round(asyncio.get_running_loop().time(), 3))
        self.running += 1
        assert self.running == 1 or key not in self.takes, "a probe is never asked twice at once"
        await asyncio.sleep(self.takes.get(key, 0))
        self.running -= 1
        answer = self.answers.get(key, ProbeOutcome(ProbeAnswer.SUCCESS))
        return answer.pop(0) if isinstance(answer, list) else answer


class Node:
    """One pod's runtime records, from which its status is made whenever a result changes."""

    def __init__(self, pod, *, agent_started=LONG_AGO, seed=0):
        self.pod = pod
        self.clock = LoopClock(epoch=EPOCH)
        self.board = StatusBoard(clock=self.clock)
        self.results = ProbeResults()
        self.journal = MemoryJournal(clock=self.clock)
        self.prober = ScriptedProber()
        self.agent_started = agent_started
        self.records = {}
        self.ready = []
        self.manager = ProbeManager(
            statuses=self.board,
            results=self.results,
            prober=self.prober,
            restarts=comes_back,
            recorder=self.journal,
            clock=self.clock,
            randomness=random.Random(seed),
            agent_started=agent_started,
        )

    def start(self, name="main", *, restarts=0, ago=0.0):
        record = make_record(self.pod, name, RuntimeContainerState.RUNNING, restarts=restarts)
        self.records[name] = replace(record, started_at=self.clock.now() - timedelta(seconds=ago))
        self.report()

    def end(self, name="main", *, exit_code=0):
        self.records[name] = replace(self.records[name], state=RuntimeContainerState.EXITED, exit_code=exit_code)
        self.report()

    def report(self):
        inputs = PodStatusInputs(
            previous=self.board.get(UID) or self.pod.status,
            resources=PodResources(admitted=desired_allocation(self.pod)),
            runtime_name="containerd",
            qos_class="BestEffort",
            restarts=lambda container, code: restarts_after(container, self.pod, code),
            needs_sandbox=False,
            probes=self.results.view(),
            probed=self.manager.workers_of(UID),
            agent_started=self.agent_started,
        )
        self.board.put(UID, generate_status(self.pod, make_status(self.pod, *self.records.values()), inputs))
        ready = self.container().ready
        if not self.ready or self.ready[-1][1] is not ready:
            self.ready.append((round(self.clock.monotonic(), 3), ready))

    def container(self, name="main"):
        status = self.board.get(UID)
        every = (*status.container_statuses, *status.init_container_statuses)
        return next(found for found in every if found.name == name)

    def result(self, kind, name="main"):
        return self.results.get(ProbeKey(self.records[name].id, kind))

    def messages(self):
        return [cause.finding.message for cause in self.journal.all()]

    @asynccontextmanager
    async def run(self):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.manager.run()), group.create_task(self._follow())]
            await asyncio.sleep(0)
            yield self
            for task in tasks:
                task.cancel()

    async def _follow(self):
        with self.results.changes() as changes:
            async for _ in changes:
                self.report()


def play(node, *steps):
    """Steps are seconds to pass, or things to do."""

    async def main():
        async with node.run():
            for step in steps:
                if callable(step):
                    step()
                else:
                    await asyncio.sleep(step)

    run_virtual(main())


def test_readiness_is_asked_as_soon_as_the_container_runs():
    node = Node(make_pod(probed(readiness={"period": 10})))
    play(node, lambda: node.manager.add_pod(node.pod), 3, node.start, 25)
    assert node.prober.asked["main", READINESS] == [3.0, 13.0, 23.0]
    assert node.ready == [(3.0, False), (3.0, True)]


def test_probes_that_can_kill_keep_to_their_period():
    node = Node(make_pod(probed(liveness={"period": 10})))
    play(node, lambda: node.manager.add_pod(node.pod), 3, node.start, 25)
    assert node.prober.asked["main", LIVENESS] == [10.0, 20.0]
    assert node.ready == [(3.0, True)]


def test_readiness_waits_for_the_initial_delay_and_no_longer():
    node = Node(make_pod(probed(readiness={"period": 10, "delay": 5})))
    play(node, lambda: node.manager.add_pod(node.pod), 3, node.start, 20)
    assert node.prober.asked["main", READINESS] == [8.0, 18.0]


def test_a_container_that_never_starts():
    """Startup period 5 and three failures: killed 10 s after the first try; liveness is never asked."""
    node = Node(make_pod(probed(startup={"period": 5}, liveness={"period": 10}, readiness={"period": 10})))
    node.prober.answers["main", STARTUP] = BAD
    killed = []

    def restart():
        killed.append(node.result(STARTUP))
        node.start(restarts=1)

    play(node, lambda: node.manager.add_pod(node.pod), node.start, 10.1, 8, restart, 15)
    assert killed == [ProbeResult.FAILURE]
    assert node.prober.asked["main", STARTUP] == [0.0, 5.0, 10.0, 20.0, 25.0, 30.0]
    assert node.prober.asked["main", LIVENESS] == node.prober.asked["main", READINESS] == []
    assert node.messages()[:3] == ["Startup probe failed: no"] * 3


def test_once_started_the_other_probes_begin():
    node = Node(make_pod(probed(startup={"period": 5}, liveness={"period": 4}, readiness={"period": 10})))
    node.prober.answers["main", STARTUP] = [BAD, ProbeOutcome(ProbeAnswer.SUCCESS)]
    play(node, lambda: node.manager.add_pod(node.pod), node.start, 13)
    assert node.prober.asked["main", STARTUP] == [0.0, 5.0]
    assert node.prober.asked["main", READINESS] == [5.0]
    assert node.prober.asked["main", LIVENESS] == [8.0, 12.0]
    assert node.container().started
    assert node.ready[-1] == (5.0, True)


def test_readiness_that_comes_and_goes():
    node = Node(make_pod(probed(readiness={"period": 1, "failures": 2})))
    good = ProbeOutcome(ProbeAnswer.SUCCESS)
    node.prober.answers["main", READINESS] = [good, BAD, good, BAD, BAD, BAD, BAD, good, good]
    play(node, lambda: node.manager.add_pod(node.pod), node.start, 7.5)
    # The report that the container is not ready any more asks once more at once, as upstream does.
    assert node.prober.asked["main", READINESS] == [0.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 7.0]
    assert [entry for entry in node.ready if entry[0] > 0] == [(4.0, False), (6.0, True)]


def test_a_failed_liveness_names_its_cause():
    node = Node(make_pod(probed(liveness={"period": 1, "failures": 2})))
    node.prober.answers["main", LIVENESS] = BAD
    seen = []

    async def main():
        with node.results.changes() as changes:
            async with node.run():
                node.manager.add_pod(node.pod)
                node.start()
                await asyncio.sleep(5)
            seen.extend(changes.drain())

    run_virtual(main())
    assert [(found.result, found.uid) for found in seen] == [(ProbeResult.SUCCESS, UID), (ProbeResult.FAILURE, UID)]
    causes = node.journal.all()
    assert seen[-1].cause == causes[-1].id
    assert causes[-1].finding.measurements == {"probe": "liveness", "failuresInARow": 2, "failureThreshold": 2}
    assert node.prober.asked["main", LIVENESS] == [0.0, 1.0]


def test_a_new_instance_is_probed_again():
    node = Node(make_pod(probed(liveness={"period": 1, "failures": 1})))
    node.prober.answers["main", LIVENESS] = [BAD, ProbeOutcome(ProbeAnswer.SUCCESS), ProbeOutcome(ProbeAnswer.SUCCESS)]
    old, seen = [], []

    def restart():
        old.append(ProbeKey(node.records["main"].id, LIVENESS))
        node.start(restarts=1)

    def look():
        seen.append(dict(node.results.view()))

    play(node, lambda: node.manager.add_pod(node.pod), node.start, 2.5, restart, 2, look)
    assert node.prober.asked["main", LIVENESS] == [0.0, 3.0, 4.0]
    assert old[0] not in seen[-1]
    assert seen[-1][ProbeKey(node.records["main"].id, LIVENESS)] is ProbeResult.SUCCESS


READY = PodStatus(conditions=(PodCondition(type="Ready", status="True"),))


def test_after_a_restart_of_the_agent_nothing_flips():
    """First probes are spread over the period, and until they come the container stays what it was."""
    pod = change(make_pod(probed(readiness={"period": 10}, startup={"period": 10})), status=READY)
    node = Node(pod, agent_started=EPOCH)
    play(node, lambda: node.start(ago=600), lambda: node.manager.add_pod(node.pod), node.report, 25)
    first, *others = node.prober.asked["main", READINESS]
    assert 0 < first < 10
    assert others[0] == round(first + 10, 3)
    assert node.prober.asked["main", STARTUP] == []
    assert node.ready == [(0.0, True)]


def test_after_a_restart_of_the_agent_a_failing_container_stays_ready_until_the_threshold():
    pod = change(make_pod(probed(readiness={"period": 1, "failures": 3})), status=READY)
    node = Node(pod, agent_started=EPOCH)
    node.prober.answers["main", READINESS] = BAD
    play(node, lambda: node.start(ago=600), lambda: node.manager.add_pod(pod), 5)
    first = node.prober.asked["main", READINESS][0]
    assert node.ready == [(0.0, True), (round(first + 2, 3), False)]


def test_after_a_restart_of_the_agent_a_new_pod_does_not_wait():
    node = Node(make_pod(probed(readiness={"period": 10})), agent_started=EPOCH)
    play(node, 1, lambda: node.manager.add_pod(node.pod), 0.5, node.start, 1)
    assert node.prober.asked["main", READINESS] == [1.5]


def test_first_probes_are_spread_only_while_the_agent_is_young():
    node = Node(make_pod(probed(liveness={"period": 10})), agent_started=EPOCH)
    play(node, 11, lambda: node.start(ago=1), lambda: node.manager.add_pod(node.pod), 1)
    assert node.prober.asked["main", LIVENESS] == [11.0]


def test_a_status_during_a_probe_changes_nothing():
    node = Node(make_pod(probed(readiness={"period": 10})))
    node.prober.takes["main", READINESS] = 2
    node.prober.answers["main", READINESS] = BAD
    play(
        node,
        lambda: node.manager.add_pod(node.pod),
        node.start,
        1,
        lambda: node.manager.trigger_readiness(UID),
        10.5,
    )
    assert node.prober.asked["main", READINESS] == [0.0, 10.0]


def test_a_new_instance_during_a_probe_is_asked_right_after():
    node = Node(make_pod(probed(readiness={"period": 10})))
    node.prober.takes["main", READINESS] = 2
    play(node, lambda: node.manager.add_pod(node.pod), node.start, 1, lambda: node.start(restarts=1), 5)
    assert node.prober.asked["main", READINESS] == [0.0, 2.0]
    assert node.ready[-1] == (4.0, True)


def test_a_trigger_starts_the_period_over():
    node = Node(make_pod(probed(readiness={"period": 10})))
    node.prober.answers["main", READINESS] = BAD
    play(
        node,
        lambda: node.manager.add_pod(node.pod),
        node.start,
        4,
        lambda: node.manager.trigger_readiness(UID),
        11,
    )
    assert node.prober.asked["main", READINESS] == [0.0, 4.0, 14.0]


def test_a_probe_slower_than_its_period():
    node = Node(make_pod(probed(liveness={"period": 1})))
    node.prober.takes["main", LIVENESS] = 1.5
    play(node, lambda: node.manager.add_pod(node.pod), node.start, 5)
    assert node.prober.asked["main", LIVENESS] == [0.0, 1.5, 3.0, 4.5]


def test_stopping_liveness_and_startup():
    sidecar = change(probed("proxy", liveness={}, startup={}), restart_policy="Always")
    pod = make_pod(probed(liveness={}, startup={}, readiness={}), init=(sidecar,))
    node = Node(pod)
    before = []

    def stop():
        before.append((node.result(LIVENESS), node.manager.workers_of(UID)))
        node.manager.stop_liveness_and_startup(pod)
        node.manager.add_pod(pod)

    play(node, lambda: node.start("proxy"), node.start, lambda: node.manager.add_pod(pod), 1, stop, 1)
    everything = {("main", kind) for kind in ProbeKind} | {("proxy", LIVENESS), ("proxy", STARTUP)}
    assert before == [(ProbeResult.SUCCESS, everything)]
    assert node.manager.workers_of(UID) == {("main", READINESS), ("proxy", LIVENESS), ("proxy", STARTUP)}
    assert (node.result(LIVENESS), node.result(STARTUP)) == (None, None)


@pytest.mark.parametrize(
    "remove",
    [
        pytest.param(lambda manager: manager.remove_pod(UID), id="by its name"),
        pytest.param(lambda manager: manager.clean_up({PodUID("other")}), id="because it is not known"),
    ],
)
def test_removing_a_pod(remove):
    node = Node(make_pod(probed(readiness={"period": 1}, liveness={"period": 1})))
    play(
        node,
        node.start,
        lambda: node.manager.add_pod(node.pod),
        1.5,
        lambda: node.manager.clean_up({UID}),
        1,
        lambda: remove(node.manager),
        5,
    )
    assert node.prober.asked["main", LIVENESS] == [0.0, 1.0, 2.0]
    assert dict(node.results.view()) == {}
    assert node.manager.workers_of(UID) == frozenset()


def test_an_ended_container_is_not_probed_until_there_is_a_new_one():
    node = Node(make_pod(probed(readiness={"period": 1}), "other", restart_policy="OnFailure"))
    workers = []

    def sync():
        workers.append(len(node.manager.workers_of(UID)))
        node.manager.add_pod(node.pod)

    play(node, lambda: node.start("other"), node.start, sync, 1.5, node.end, 1, sync, 1, sync)
    assert workers == [0, 0, 0]
    play(node, lambda: node.start(restarts=1), sync, 0.5)
    assert len(node.manager.workers_of(UID)) == 1
    assert node.prober.asked["main", READINESS] == [0.0, 1.0, 0.0]


def test_a_container_that_will_be_restarted_keeps_its_worker():
    node = Node(make_pod(probed(readiness={"period": 1})))
    play(node, node.start, lambda: node.manager.add_pod(node.pod), 1.5, node.end, 3)
    assert node.manager.workers_of(UID) == {("main", READINESS)}
    assert node.result(READINESS) is ProbeResult.FAILURE


def test_a_deleted_pod_is_not_killed_by_its_probes():
    node = Node(make_pod(probed(liveness={"period": 1, "failures": 2})))
    node.prober.answers["main", LIVENESS] = BAD
    deleted = change(node.pod, metadata=change(node.pod.metadata, deletion_timestamp=Time.of(EPOCH)))
    play(node, node.start, lambda: node.manager.add_pod(node.pod), 0.5, lambda: node.manager.add_pod(deleted), 3)
    assert node.prober.asked["main", LIVENESS] == [0.0]
    assert node.manager.workers_of(UID) == frozenset()


def annotated(pod, text):
    return change(pod, metadata=change(pod.metadata, annotations={ANNOTATION: text}))


def test_periods_below_a_second():
    node = Node(annotated(make_pod(probed(readiness={}, liveness={})), "main.readiness=200ms"))
    play(node, lambda: node.manager.add_pod(node.pod), node.start, 0.9)
    assert node.prober.asked["main", READINESS] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert node.prober.asked["main", LIVENESS] == [0.0]


def test_the_same_complaint_is_made_once_a_second():
    node = Node(annotated(make_pod(probed(readiness={"failures": 1})), "main.readiness=100ms"))
    node.prober.answers["main", READINESS] = BAD
    play(node, lambda: node.manager.add_pod(node.pod), node.start, 2.95)
    assert len(node.prober.asked["main", READINESS]) == 30
    assert len(node.messages()) == 3


def test_periods_that_cannot_be_read_are_reported_once_and_ignored():
    node = Node(annotated(make_pod(probed(readiness={})), "main.readiness=fast"))
    play(node, lambda: node.manager.add_pod(node.pod), lambda: node.manager.add_pod(node.pod), node.start, 15)
    assert node.prober.asked["main", READINESS] == [0.0, 10.0]
    (cause,) = node.journal.all()
    assert cause.finding.decision == "ProbePeriodsIgnored"
    assert 'time: invalid duration "fast"' in cause.finding.message


def test_pods_added_before_the_manager_runs():
    node = Node(make_pod(probed(liveness={"period": 1})))

    async def main():
        await asyncio.sleep(1)
        node.start()
        node.manager.add_pod(node.pod)
        async with node.run():
            await asyncio.sleep(1.5)

    run_virtual(main())
    assert node.prober.asked["main", LIVENESS] == [1.0, 2.0]


def test_after_dropped_changes_every_started_container_is_probed():
    node = Node(make_pod(probed(readiness={"period": 10})))

    def start_in_a_flood():
        node.start()
        for number in range(DEFAULT_LIMIT):
            node.board.put(PodUID(f"other-{number}"), PodStatus(phase="Running"))

    play(node, lambda: node.manager.add_pod(node.pod), 3, start_in_a_flood, 1)
    assert node.prober.asked["main", READINESS] == [3.0]
