"""Probes in the wired agent, in virtual time."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.handlers import ExecAction, Probe
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import ExecResult, FakeImage, FakeRuntime, Script
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)


class Health:
    """What the probed command answers, until it is changed."""

    def __init__(self) -> None:
        self.exit_code = 1

    def answer(self, _config, _command) -> ExecResult:
        return ExecResult(exit_code=self.exit_code)


def build(health: Health) -> SimulatedNode:
    runtime = FakeRuntime(start=EPOCH, script=Script(execs=health.answer), images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


def probe() -> Probe:
    return Probe(
        exec=ExecAction(command=("check",)),
        period_seconds=1,
        timeout_seconds=1,
        failure_threshold=3,
        success_threshold=1,
    )


async def until(running: RunningAgent, condition: Callable[[], bool], *, within: timedelta = 30 * SECOND) -> None:
    clock = LoopClock(epoch=EPOCH)
    give_up = clock.now() + within
    while not condition():
        if clock.now() > give_up:
            story = "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in running.journal.all())
            pytest.fail(f"not within {within}:\n{story}")
        await clock.sleep(timedelta(milliseconds=1))


def is_ready(running: RunningAgent) -> bool:
    status = running.agent.statuses.get(UID)
    return status is not None and any(c.type == "Ready" and c.status == "True" for c in status.conditions)


def decisions(running: RunningAgent) -> list[str]:
    return [cause.finding.decision for cause in running.journal.all()]


def test_a_pod_is_ready_while_its_probe_passes():
    health = Health()

    async def story():
        wanted = DrivenPodSource()
        async with build(health).run_agent(wanted) as running:
            wanted.add(make_pod(replace(make_container("main"), readiness_probe=probe()), uid=UID, source="file"))
            await until(running, lambda: "Unhealthy" in decisions(running))
            assert not is_ready(running)
            health.exit_code = 0
            await until(running, lambda: is_ready(running))
            health.exit_code = 1
            await until(running, lambda: not is_ready(running))

    run_virtual(story())


def test_a_container_that_fails_its_liveness_probe_is_restarted_and_the_probe_is_the_cause():
    health = Health()
    node = build(health)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod(replace(make_container("main"), liveness_probe=probe()), uid=UID, source="file"))
            await until(running, lambda: "KillContainer" in decisions(running))
            health.exit_code = 0
            await until(running, lambda: len(node.runtime.containers()) == 2)
            causes = {cause.id: cause for cause in running.journal.all()}
            kill = next(cause for cause in causes.values() if cause.finding.decision == "KillContainer")
            assert kill.finding.message == "Container main failed liveness probe, will be restarted"
            assert causes[kill.parent].finding.decision == "Unhealthy"

    run_virtual(story())
