"""How containers end under the wired agent, in virtual time: hooks, termination messages, what is kept."""

from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.handlers import ExecAction, Lifecycle, LifecycleHandler, SleepAction
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, MemoryFiles, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import ExecResult, FakeImage, FakeRuntime, MemorySink, Script
from klet.testing.fake_runtime.lives import by_name, crashes, runs_for
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)


def node(*, execs=None, **lives) -> SimulatedNode:
    sink = MemorySink()
    script = Script(lives=by_name(lives), **({"execs": execs} if execs else {}))
    runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),), sink=sink)
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, files=MemoryFiles(sink=sink))


async def until(machine: SimulatedNode, condition: Callable[[], bool], *, within: timedelta = 60 * SECOND) -> None:
    give_up = machine.clock.now() + within
    while not condition():
        story = "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in machine.journal.all())
        assert machine.clock.now() < give_up, f"not within {within}:\n{story}"
        await machine.clock.sleep(timedelta(milliseconds=10))


def decisions(machine: SimulatedNode) -> list[str]:
    return [cause.finding.decision for cause in machine.journal.all()]


def test_of_a_crashing_container_one_end_is_kept_beside_the_running_instance():
    machine = node(main=crashes(3))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(machine, lambda: decisions(machine).count("Started") == 4, within=200 * SECOND)
            await machine.clock.sleep(SECOND)
            attempts = [container.config.metadata.attempt for container in machine.runtime.containers()]
            assert sorted(attempts) == [2, 3]
            [status] = running.agent.statuses.get(UID).container_statuses
            assert (status.restart_count, status.last_state.terminated.exit_code) == (3, 1)
            assert sorted(machine.logs.links.values()) == [
                f"/var/log/pods/default_pod_{UID}/main/{attempt}.log" for attempt in (2, 3)
            ]
            wanted.remove(UID)
            await until(machine, lambda: not machine.runtime.sandboxes())
            assert machine.logs.links == {}

    run_virtual(story())


def test_a_hook_runs_before_a_removed_pod_is_stopped():
    machine = node()
    hook = LifecycleHandler(sleep=SleepAction(seconds=6))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted):
            container = replace(make_container("main"), lifecycle=Lifecycle(pre_stop=hook))
            wanted.add(make_pod(container, uid=UID, source="file"))
            await until(machine, lambda: "Ready" in decisions(machine))
            wanted.remove(UID)
            removed = machine.clock.now()
            await until(machine, lambda: "Stopped" in decisions(machine))
            assert machine.clock.now() - removed >= 6 * SECOND
            [stop] = [call for call in machine.runtime.calls if call.rpc == "StopContainer"]
            assert stop.request.timeout == 24

    run_virtual(story())


def test_a_failing_hook_after_the_start_counts_as_a_crash():
    machine = node(execs=lambda _config, _command: ExecResult(exit_code=1, stderr=b"no"))
    hook = LifecycleHandler(exec=ExecAction(command=("greet",)))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            container = replace(make_container("main"), lifecycle=Lifecycle(post_start=hook))
            wanted.add(make_pod(container, uid=UID, source="file"))

            def waits_for() -> str:
                status = running.agent.statuses.get(UID)
                waiting = status.container_statuses[0].state.waiting if status else None
                return waiting.reason if waiting else ""

            await until(machine, lambda: waits_for() == "CrashLoopBackOff")
            await until(machine, lambda: decisions(machine).count("FailedPostStartHook") == 3)
            assert "Failed" not in decisions(machine)

    run_virtual(story())


def test_termination_messages_are_in_the_status():
    machine = node(main=lambda _config: runs_for(SECOND, 3).leaving("broken"))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            container = replace(make_container("main"), termination_message_path="/dev/termination-log")
            wanted.add(make_pod(container, uid=UID, source="file", restart_policy="Never"))
            await until(machine, lambda: "Finished" in decisions(machine))
            [status] = running.agent.statuses.get(UID).container_statuses
            assert (status.state.terminated.exit_code, status.state.terminated.message) == (3, "broken")

    run_virtual(story())
