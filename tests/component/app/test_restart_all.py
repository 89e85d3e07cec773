"""One container's exit restarts all of its pod (RestartAllContainersOnContainerExits), under the wired agent."""

import itertools
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer
from klet.api.handlers import ExecAction, Lifecycle, LifecycleHandler
from klet.api.pod import Pod, PodStatus
from klet.model.features import PodFeatures
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, MemoryFiles, SimulatedNode
from klet.simulation.node import RunningAgent
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, MemorySink, Script
from klet.testing.fake_runtime.lives import always, by_name, in_turn, runs_for
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)
CALL = timedelta(milliseconds=20)
ON = PodFeatures(restart_all=True)
DONE = always(runs_for(SECOND, 0))
ONCE = in_turn(runs_for(20 * SECOND, 42), runs_for(3600 * SECOND, 0))
"""Asks for a restart of all containers after twenty seconds, and runs on from then."""


def ruled(name: str, *, policy: str = "Never", code: int = 42, action: str = "RestartAllContainers") -> Container:
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(code,))
    rules = (ContainerRestartRule(action=action, exit_codes=codes),)
    return replace(make_container(name, restart_policy=policy), restart_policy_rules=rules)


def whole_pod(**fields) -> Pod:
    """A pod with an init container, a sidecar, the container that asks for a restart, and one beside it."""
    init = ("setup", make_container("proxy", restart_policy="Always"))
    return make_pod(ruled("main"), "helper", init=init, uid=UID, restart_policy="Never", **{"source": "file"} | fields)


def node(*, latency: timedelta = CALL, **lives) -> SimulatedNode:
    sink = MemorySink()
    script = Script(lives=by_name({"setup": DONE, "main": ONCE} | lives), latency=lambda _rpc, _rng: latency)
    runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),), sink=sink)
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, files=MemoryFiles(sink=sink))


class Story:
    """A pod under an agent, and every status that was reported of it."""

    def __init__(self, machine: SimulatedNode, running: RunningAgent) -> None:
        self.machine, self._board = machine, running.agent.statuses
        self.statuses: list[PodStatus] = []

    async def follow(self, seconds: float) -> None:
        with self._board.changes() as changes:
            until = self.machine.clock.now() + seconds * SECOND
            while self.machine.clock.now() < until:
                await self.machine.clock.sleep(timedelta(milliseconds=10))
                if changes.drain():
                    self.statuses.append(self.status)

    @property
    def status(self) -> PodStatus:
        status = self._board.get(UID)
        assert status is not None
        return status

    def of(self, name: str):
        every = (*self.status.init_container_statuses, *self.status.container_statuses)
        return next(each for each in every if each.name == name)

    def said(self, decision: str) -> list[str]:
        return [c.finding.message for c in self.machine.journal.all() if c.finding.decision == decision]


def condition(status: PodStatus, kind: str = "AllContainersRestarting") -> tuple[str, str] | None:
    return next(((each.status, each.reason) for each in status.conditions if each.type == kind), None)


def tell(machine: SimulatedNode, pod: Pod, story, *, features: PodFeatures = ON) -> None:
    async def run() -> None:
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, features=features) as running:
            wanted.add(pod)
            await story(Story(machine, running))

    run_virtual(run())


def test_the_exit_of_one_container_restarts_all_in_the_same_sandbox():
    machine = node()

    async def story(told: Story) -> None:
        await told.follow(10)
        [sandbox] = machine.runtime.sandboxes()
        before = {container.id for container in machine.runtime.containers()}
        await told.follow(30)
        assert [each.id for each in machine.runtime.sandboxes()] == [sandbox.id]
        after = {container.id: container.config.metadata.name for container in machine.runtime.containers()}
        assert before.isdisjoint(after)
        assert sorted(after.values()) == ["helper", "main", "proxy", "setup"]
        assert {name: told.of(name).restart_count for name in after.values()} == dict.fromkeys(after.values(), 1)
        assert all(told.of(name).state.running for name in ("main", "helper", "proxy"))
        assert told.of("setup").state.terminated.exit_code == 0

    tell(machine, whole_pod(), story)


def test_what_is_reported_meanwhile():
    machine = node()

    async def story(told: Story) -> None:
        await told.follow(40)
        conditions = [condition(status) for status in told.statuses]
        started = ("True", "RestartAllContainersStarted")
        first, last = conditions.index(started), len(conditions) - conditions[::-1].index(started)
        assert set(conditions[:first] + conditions[last:]) == {("False", "")}
        # A pod whose init containers run again is pending, as upstream has it, but initialized.
        phases = [status.phase for status in told.statuses[first:]]
        assert [phase for phase, _ in itertools.groupby(phases)] == ["Running", "Pending", "Running"]
        assert {condition(status, "Initialized") for status in told.statuses[first:]} == {("True", "")}
        gone = told.statuses[last]
        for each in (*gone.init_container_statuses, *gone.container_statuses):
            assert each.state.waiting.reason == "RestartingAllContainers"
            assert each.state.waiting.message == "The container is removed because RestartAllContainers in place"
            assert each.last_state.terminated.reason == "RestartingAllContainers"
            assert each.last_state.terminated.exit_code == 137
            assert each.restart_count == 1
        [why] = told.said("RestartAllContainers")
        assert why == "container main exited with code 42, and its rule for that is RestartAllContainers"

    tell(machine, whole_pod(), story)


def test_containers_are_killed_without_hooks_and_what_asked_for_it_goes_last():
    machine = node()
    hook = Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("bye",))))
    pod = whole_pod()
    main, helper = pod.spec.containers
    pod = replace(pod, spec=replace(pod.spec, containers=(main, replace(helper, lifecycle=hook))))

    async def story(told: Story) -> None:
        await told.follow(10)
        names = {container.id: container.config.metadata.name for container in machine.runtime.containers()}
        await told.follow(30)
        calls = machine.runtime.calls
        stops = [names[c.request.container_id] for c in calls if c.rpc == "StopContainer"]
        assert {c.request.timeout for c in calls if c.rpc == "StopContainer"} == {2}
        assert stops == ["helper", "proxy"]
        removals = [names[c.request.container_id] for c in calls if c.rpc == "RemoveContainer"]
        assert removals == ["helper", "setup", "proxy", "main"]
        assert "ExecSync" not in {call.rpc for call in calls}
        assert told.said("Killing") == ["killing", "killing"]

    tell(machine, pod, story)


def test_an_ephemeral_container_goes_on():
    machine = node()
    debugger = EphemeralContainer(name="debug", image=IMAGE, image_pull_policy="IfNotPresent")
    pod = whole_pod(source="api")
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(debugger,)))

    async def story(told: Story) -> None:
        await told.follow(10)
        before = [c.id for c in machine.runtime.containers() if c.config.metadata.name == "debug"]
        await told.follow(30)
        assert [c.id for c in machine.runtime.containers() if c.config.metadata.name == "debug"] == before
        assert told.of("main").restart_count == 1

    tell(machine, pod, story)


@pytest.mark.parametrize(
    ("features", "restarts"),
    [
        pytest.param(ON, 1, id="with the gate, although no policy restarts anything"),
        pytest.param(PodFeatures(), 0, id="not without it: then the container's policy decides"),
    ],
)
def test_the_gate_decides(features, restarts):
    machine = node()

    async def story(told: Story) -> None:
        await told.follow(40)
        assert told.of("main").restart_count == restarts
        assert told.of("helper").restart_count == restarts
        assert (condition(told.status) is not None) is (features == ON)
        assert (told.of("main").state.terminated is not None) is (features != ON)

    tell(machine, whole_pod(), story, features=features)


def test_an_init_container_can_ask_for_it_too():
    machine = node(check=in_turn(runs_for(5 * SECOND, 42), runs_for(SECOND, 0)))
    pod = make_pod("helper", init=("setup", ruled("check")), uid=UID, restart_policy="Never", source="file")

    async def story(told: Story) -> None:
        await told.follow(30)
        assert {name: told.of(name).restart_count for name in ("setup", "check")} == {"setup": 1, "check": 1}
        assert told.of("helper").restart_count == 0
        assert told.status.phase == "Running"

    tell(machine, pod, story)


def test_a_pod_of_one_container_restarts_without_waiting_for_a_resync():
    machine = node()
    pod = make_pod(ruled("main"), uid=UID, restart_policy="Never", source="file")

    async def story(told: Story) -> None:
        await told.follow(25)
        assert told.of("main").restart_count == 1
        assert told.of("main").state.running is not None

    tell(machine, pod, story)


def test_a_container_that_asks_again_and_again_restarts_its_pod_every_two_seconds_at_most():
    machine = node(main=always(runs_for(timedelta(), 42)))
    pod = make_pod(ruled("main"), "helper", uid=UID, restart_policy="Never", source="file")

    async def story(told: Story) -> None:
        await told.follow(60)
        assert 20 <= told.of("main").restart_count <= 30
        # Nothing of it waits for a crash loop: each time it starts as if it had never run.
        assert told.said("BackOff") == []

    tell(machine, pod, story)


def test_a_pod_that_is_removed_meanwhile_ends():
    machine = node()

    async def run() -> None:
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, features=ON) as running:
            wanted.add(whole_pod())
            told = Story(machine, running)
            await told.follow(1)
            while condition(told.status) != ("True", "RestartAllContainersStarted"):
                await machine.clock.sleep(timedelta(milliseconds=1))
            wanted.remove(UID)
            await machine.clock.sleep(40 * SECOND)
            assert not machine.runtime.sandboxes()
            assert not machine.runtime.containers()

    run_virtual(run())


@pytest.mark.parametrize("latency", [CALL, timedelta()], ids=["slow calls", "calls that take no time"])
@pytest.mark.parametrize("calls", [1, 6, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 32, 36])
def test_an_agent_that_dies_in_the_middle_leaves_it_to_the_next(calls, latency):
    """Whichever call to the runtime was the last, all containers have restarted once in the end."""
    machine = node(latency=latency)

    async def run() -> None:
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, features=ON):
            wanted.add(whole_pod())
            await machine.clock.sleep(20 * SECOND)
            begun = len(machine.runtime.calls)
            while len(machine.runtime.calls) < begun + calls:
                await machine.clock.sleep(timedelta(milliseconds=1))
        async with machine.run_agent(Wanted(whole_pod()), features=ON) as running:
            told = Story(machine, running)
            await machine.clock.sleep(90 * SECOND)
            assert len(machine.runtime.sandboxes()) == 1
            running_now = {c.config.metadata.name for c in machine.runtime.containers() if not c.finished_at}
            assert running_now == {"main", "helper", "proxy"}
            counts = {name: told.of(name).restart_count for name in ("main", "helper", "proxy", "setup")}
            assert counts == dict.fromkeys(counts, 1)
            assert condition(told.status) == ("False", "")

    run_virtual(run())


class Wanted(DrivenPodSource):
    """A source that has a pod from the beginning, as a directory has after a restart."""

    def __init__(self, *pods: Pod) -> None:
        super().__init__()
        self.add(*pods)
