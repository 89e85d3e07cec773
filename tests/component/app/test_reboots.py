"""The machine is reset or shut down under running pods: what comes back, and what is recorded as the cause."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.handlers import ExecAction, Probe
from klet.api.pod import Pod, PodStatus
from klet.images.pull_meter import PullMeter
from klet.images.running_pulls import RunningPulls
from klet.journal.queries import JournalQueries
from klet.model.causes import Cause
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.runtime import labels
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import ContainerLife, ExecResult, FakeImage, FakeRuntime, OnTerm, Script
from klet.testing.fake_runtime.lives import by_name, crashes, in_turn, runs_for
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)
PROBE = Probe(
    exec=ExecAction(command=("check",)), period_seconds=5, timeout_seconds=1, failure_threshold=3, success_threshold=1
)


class Machine:
    """A machine with one pod, and the agents that run on it one after the other."""

    def __init__(self, pod: Pod, *, is_healthy: Callable[[], bool] = lambda: True, **lives) -> None:
        self.pod = pod
        self.clock = LoopClock(epoch=EPOCH)
        script = Script(
            lives=by_name(lives) if lives else Script().lives,
            execs=lambda _config, _command: ExecResult(exit_code=0 if is_healthy() else 1),
        )
        runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),))
        self.node = SimulatedNode(clock=self.clock, runtime=runtime)
        self.reported: list[PodStatus] = []

    async def live(self, condition: Callable[[PodStatus], bool], *, stop: bool = False, rest: float = 5) -> PodStatus:
        """Run an agent until the pod's status is so, and a little longer; with `stop` it is stopped, not killed."""
        wanted = DrivenPodSource()
        wanted.add(self.pod)
        async with self.node.run_agent(wanted) as running, asyncio.TaskGroup() as group:
            listener = group.create_task(self._listen(running))
            status = await self._until(running, condition)
            await self.clock.sleep(timedelta(seconds=rest))
            status = running.agent.statuses.get(UID) or status
            listener.cancel()
            if stop:
                await running.boots.note_stopped()
        return status

    async def reboot(self, *, clean: bool = False) -> None:
        self.node.reboot(clean=clean)
        self.reported.clear()
        await self.clock.sleep(40 * SECOND)

    def find(self, *decisions: Reason) -> list[Cause]:
        return [cause for cause in self.node.journal.all() if cause.finding.decision in decisions]

    def counts(self) -> dict[str, int]:
        """Return the restart count of the newest instance of each container."""
        return {
            each.config.metadata.name: int(each.config.annotations[labels.RESTART_COUNT])
            for each in self.node.runtime.containers()
        }

    async def _listen(self, running: RunningAgent) -> None:
        with running.agent.statuses.changes() as changes:
            async for uid in changes.items():
                if (status := running.agent.statuses.get(uid)) is not None:
                    self.reported.append(status)

    async def _until(self, running: RunningAgent, condition: Callable[[PodStatus], bool]) -> PodStatus:
        give_up = self.clock.now() + 60 * SECOND
        while (status := running.agent.statuses.get(UID)) is None or not condition(status):
            if self.clock.now() > give_up:
                story = [f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in running.journal.all()]
                pytest.fail("it never came:\n" + "\n".join(story))
            await self.clock.sleep(timedelta(milliseconds=1))
        return status


def is_ready(status: PodStatus) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in status.conditions)


def is_over(status: PodStatus) -> bool:
    return status.phase in {"Succeeded", "Failed"}


def make(*containers, **options) -> Pod:
    return make_pod(*containers, uid=UID, source="file", **options)


def test_a_pod_comes_back_with_one_restart_and_the_reboot_as_its_cause():
    machine = Machine(make("main"))

    async def story():
        before = await machine.live(is_ready)
        await machine.reboot()
        after = await machine.live(lambda status: is_ready(status) and status.container_statuses[0].restart_count > 0)
        [main] = after.container_statuses
        ended = main.last_state.terminated
        assert (main.restart_count, ended.exit_code, ended.reason) == (1, 255, "Unknown")
        assert after.pod_ip != before.pod_ip
        assert after.start_time == before.start_time
        assert {status.phase for status in machine.reported} == {"Running"}
        # Not ready first: the first status of the new run does not repeat that of the old one.
        assert not is_ready(machine.reported[0])

    run_virtual(story())
    [reboot] = machine.find(Reason.NODE_REBOOTED)
    measured = reboot.finding.measurements
    assert (measured["previousBootId"], measured["bootId"]) == ("boot-1", "boot-2")
    assert measured["agentWasStopped"] is False
    assert 40 <= measured["awaySeconds"] <= 50
    consequences = machine.find(Reason.EXITED, Reason.SANDBOX_CHANGED, Reason.NOT_READY)
    assert {cause.finding.decision for cause in consequences} == {
        Reason.EXITED,
        Reason.SANDBOX_CHANGED,
        Reason.NOT_READY,
    }
    assert {cause.parent for cause in consequences} == {reboot.id}


@pytest.mark.parametrize("stop", [False, True], ids=["a killed agent", "a stopped agent"])
def test_an_agent_that_restarts_without_a_reboot_records_none(stop):
    machine = Machine(make("main"))

    async def story():
        await machine.live(is_ready, stop=stop)
        await machine.live(is_ready)
        await machine.live(is_ready)

    run_virtual(story())
    assert machine.find(Reason.NODE_REBOOTED, Reason.SANDBOX_CHANGED, Reason.EXITED) == []
    assert len(machine.node.runtime.containers()) == 1


def test_the_first_agent_of_a_machine_records_no_reboot():
    machine = Machine(make("main"))
    run_virtual(machine.live(is_ready))
    assert machine.find(Reason.NODE_REBOOTED) == []


def test_a_clean_shutdown_is_told_from_a_reset():
    machine = Machine(make("main"))

    async def story():
        await machine.live(is_ready, stop=True)
        await machine.reboot(clean=True)
        await machine.live(is_ready)

    run_virtual(story())
    [reboot] = machine.find(Reason.NODE_REBOOTED)
    assert reboot.finding.measurements["agentWasStopped"] is True


def test_a_second_agent_after_the_reboot_names_it_too():
    """The first one recorded it and was killed before it could restart the pod."""
    machine = Machine(make("main"))

    async def story():
        await machine.live(is_ready)
        await machine.reboot()
        boots = machine.node.open_boots()
        await machine.node.compare_boots(boots)
        await boots.note_running()
        await machine.clock.sleep(5 * SECOND)
        await machine.live(is_ready)

    run_virtual(story())
    [reboot] = machine.find(Reason.NODE_REBOOTED)
    [changed] = machine.find(Reason.SANDBOX_CHANGED)
    assert changed.parent == reboot.id


def test_every_container_of_the_pod_names_the_reboot_and_later_ends_do_not():
    pod = make("main", init=["first", "second"])
    machine = Machine(
        pod,
        first=in_turn(runs_for(SECOND), runs_for(SECOND)),
        second=in_turn(runs_for(SECOND), runs_for(SECOND)),
        main=in_turn(ContainerLife(), ContainerLife(lasts=20 * SECOND, exit_code=1), ContainerLife()),
    )

    async def story():
        await machine.live(is_ready)
        await machine.reboot()
        await machine.live(
            lambda status: (
                bool(status.container_statuses)
                and status.container_statuses[0].restart_count == 2
                and status.container_statuses[0].state.running is not None
            )
        )

    run_virtual(story())
    [reboot] = machine.find(Reason.NODE_REBOOTED)
    by_id = {cause.id: cause for cause in machine.node.journal.all()}

    def comes_from_reboot(cause: Cause) -> bool:
        return cause.parent is not None and (
            cause.parent == reboot.id or (cause.parent in by_id and comes_from_reboot(by_id[cause.parent]))
        )

    starts = [cause for cause in machine.find(Reason.STARTED) if cause.id > reboot.id]
    assert [(each.finding.subject.container, comes_from_reboot(each)) for each in starts] == [
        ("first", True),
        ("second", True),
        ("main", True),
        ("main", False),
    ]
    exits = [cause for cause in machine.find(Reason.EXITED) if cause.finding.subject.container == "main"]
    assert [comes_from_reboot(each) for each in exits] == [True, False]


CASES = [
    pytest.param("Always", ContainerLife(), False, ("Running", 1), id="Always restarts after a reset"),
    pytest.param("OnFailure", ContainerLife(), False, ("Running", 1), id="OnFailure restarts after exit code 255"),
    pytest.param("Never", ContainerLife(), False, ("Failed", 0), id="Never fails"),
    pytest.param(
        "OnFailure",
        ContainerLife(on_term=OnTerm(exit_code=0)),
        True,
        ("Succeeded", 0),
        id="OnFailure is done if it ended well in the shutdown",
    ),
    pytest.param(
        "OnFailure",
        ContainerLife(on_term=OnTerm(exit_code=143)),
        True,
        ("Running", 1),
        id="OnFailure restarts if the shutdown ended it",
    ),
    pytest.param(
        "Never",
        ContainerLife(on_term=OnTerm(exit_code=0)),
        True,
        ("Succeeded", 0),
        id="Never succeeds if it ended well in the shutdown",
    ),
]


@pytest.mark.parametrize(("policy", "life", "clean", "expected"), CASES)
def test_what_comes_back_follows_the_restart_policy(policy, life, clean, expected):
    machine = Machine(make("main", restart_policy=policy), main=in_turn(life, ContainerLife()))

    async def story():
        await machine.live(is_ready)
        await machine.reboot(clean=clean)
        after = await machine.live(
            lambda status: is_over(status) or (is_ready(status) and machine.counts()["main"] > 0)
        )
        [main] = after.container_statuses
        assert (after.phase, main.restart_count) == expected

    run_virtual(story())
    exits = machine.find(Reason.EXITED, Reason.PHASE_CHANGED)
    [reboot] = machine.find(Reason.NODE_REBOOTED)
    assert {cause.parent for cause in exits if cause.id > reboot.id} == {reboot.id}


def test_a_pod_whose_work_is_done_stays_so():
    machine = Machine(make("main", restart_policy="OnFailure"), main=in_turn(runs_for(SECOND)))

    async def story():
        before = await machine.live(is_over)
        await machine.reboot()
        after = await machine.live(is_over)
        assert after == before

    run_virtual(story())
    assert len(machine.node.runtime.containers()) == 1


def test_init_containers_run_again_and_sidecars_come_back():
    sidecar = make_container("proxy", restart_policy="Always")
    pod = make("main", init=["setup", sidecar])
    machine = Machine(
        pod,
        setup=in_turn(runs_for(SECOND), runs_for(SECOND)),
        proxy=in_turn(ContainerLife()),
        main=in_turn(ContainerLife()),
    )

    async def story():
        await machine.live(is_ready)
        await machine.reboot()
        after = await machine.live(lambda status: is_ready(status) and machine.counts()["main"] > 0)
        assert [status.restart_count for status in after.container_statuses] == [1]
        [setup, proxy] = after.init_container_statuses
        assert setup.state.terminated.exit_code == 0
        assert proxy.state.running is not None
        assert proxy.restart_count == 1

    run_virtual(story())


def test_a_probed_container_is_not_ready_until_its_probe_has_answered_again():
    is_up = True
    machine = Machine(make(replace(make_container("main"), readiness_probe=PROBE)), is_healthy=lambda: is_up)

    async def story():
        nonlocal is_up
        await machine.live(is_ready)
        is_up = False
        await machine.reboot()
        after = await machine.live(lambda status: status.container_statuses[0].restart_count == 1, rest=30)
        assert after.container_statuses[0].state.running is not None
        assert not any(is_ready(status) for status in machine.reported)
        is_up = True
        await machine.live(is_ready)

    run_virtual(story())


def test_a_crash_loop_keeps_its_back_off():
    """The delay is kept by wall time, not by a clock that a boot resets."""
    machine = Machine(make("main"), main=crashes(9, after=SECOND))

    async def story():
        await machine.live(lambda _status: machine.counts().get("main", 0) >= 3, rest=10)
        delays = machine.node.checkpoint.left.delays
        await machine.reboot()
        assert machine.node.checkpoint.left.delays == delays
        await machine.live(lambda _status: machine.counts()["main"] >= 4, rest=1)

    run_virtual(story())
    assert machine.counts()["main"] == 4


def test_a_pod_that_was_terminating_is_finished():
    machine = Machine(make("main"), main=in_turn(ContainerLife(on_term=None)))

    async def story():
        wanted = DrivenPodSource()
        wanted.add(machine.pod)
        async with machine.node.run_agent(wanted) as running:
            await machine._until(running, is_ready)
            wanted.remove(UID)
            await machine.clock.sleep(2 * SECOND)
        await machine.reboot()
        async with machine.node.run_agent(DrivenPodSource()):
            await machine.clock.sleep(150 * SECOND)
        assert machine.node.runtime.sandboxes() == ()
        assert machine.node.files.pods == machine.node.cgroups.pods == set()

    run_virtual(story())


def test_a_reboot_in_which_the_runtime_lost_everything_is_the_cause_too():
    """As with CRI-O, which removes what ran before a reboot."""
    machine = Machine(make("main"))

    async def story():
        await machine.live(is_ready)
        await machine.reboot()
        machine.node.runtime.forget_everything()
        await machine.live(is_ready)

    run_virtual(story())
    [reboot] = machine.find(Reason.NODE_REBOOTED)
    made = [cause for cause in machine.find(Reason.CREATE_SANDBOX) if cause.id > reboot.id]
    assert [cause.parent for cause in made] == [reboot.id]


def test_every_reboot_is_recorded_once():
    machine = Machine(make("main"))

    async def story():
        for _ in range(3):
            await machine.live(is_ready)
            await machine.reboot()
            await machine.live(is_ready)
        last = await machine.live(is_ready)
        assert last.container_statuses[0].restart_count == 3

    run_virtual(story())
    boots = [cause.finding.measurements["bootId"] for cause in machine.find(Reason.NODE_REBOOTED)]
    assert boots == ["boot-2", "boot-3", "boot-4"]


def test_explain_says_that_the_container_restarted_because_the_node_rebooted():
    machine = Machine(make("main"))

    async def story():
        await machine.live(is_ready)
        await machine.reboot()
        wanted = DrivenPodSource()
        wanted.add(machine.pod)
        async with machine.node.run_agent(wanted) as running:
            await machine._until(running, lambda s: is_ready(s) and s.container_statuses[0].restart_count == 1)
            agent = running.agent
            shown = replace(machine.pod, status=agent.statuses.get(UID))

            class Known:
                def find(self, _namespace, _name):
                    return shown

                def terminating(self):
                    return ()

            queries = JournalQueries(
                journal=running.journal,
                pods=Known(),
                node=agent.runtime,
                node_name="node",
                api_node=lambda: None,
                pulls=PullMeter(pulls=RunningPulls(), content=None, clock=machine.clock),
                clock=machine.clock,
            )
            answer = await queries.explain(namespace="default", name="pod")
            node = await queries.explain_node()
        [why] = answer.why
        assert (why.kind, why.reason) == ("past", "NodeRebooted")
        assert why.message.startswith("container main restarted because the node rebooted, which was away for 4")
        [line] = [step for step in answer.timeline if step.decision == "NodeRebooted"]
        [changed] = [step for step in answer.timeline if step.decision == "SandboxChanged"]
        assert (changed.parent, changed.depth) == (line.id, line.depth + 1)
        assert [each.reason for each in node.why] == ["NodeRebooted"]
        assert node.summary

    run_virtual(story())
