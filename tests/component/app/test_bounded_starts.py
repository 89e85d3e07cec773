"""Starts are bounded, and nothing else waits for them: the wired agent in virtual time."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import Lifecycle
from klet.api.handlers import ExecAction, LifecycleHandler, Probe
from klet.api.pod import Pod, PodStatus
from klet.model.pods import PodUID
from klet.runtime.start_turns import LONGEST_STEP
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import ExecResult, FakeImage, FakeRuntime, Fault, Hang, Script, registry_of
from klet.testing.fake_runtime.lives import by_name, crashes, in_turn, runs_for
from klet.testing.loop import EPOCH, run_virtual

SECOND = timedelta(seconds=1)
SLOTS = 2
"""How many there are to begin with: half of all."""
HUNG = 5
REMOTE = "remote:1"


class Health:
    """What probes find."""

    def __init__(self) -> None:
        self.is_well = True


def node(health: Health | None = None, **lives) -> SimulatedNode:
    script = Script(
        lives=by_name(lives),
        registry=registry_of(FakeImage(REMOTE, pull_time=timedelta(hours=1))),
        execs=lambda _config, _command: ExecResult(exit_code=0 if health is None or health.is_well else 1),
    )
    runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


def pod(name: str, *containers, **settings) -> Pod:
    return make_pod(*(containers or ("main",)), name=name, uid=name, source="file", **settings)


def status(running: RunningAgent, name: str) -> PodStatus:
    return running.agent.statuses.get(PodUID(name)) or PodStatus()


def is_ready(running: RunningAgent, name: str) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in status(running, name).conditions)


async def until(machine: SimulatedNode, condition: Callable[[], bool], *, within: timedelta = SECOND) -> None:
    give_up = machine.clock.now() + within
    while not condition():
        if machine.clock.now() > give_up:
            lines = [f"{c.at:%X.%f} {c.finding.subject.name} {c.finding.decision}" for c in machine.journal.all()]
            pytest.fail("\n".join(lines))
        await machine.clock.sleep(timedelta(milliseconds=1))


def hang_starts_of(machine: SimulatedNode, rpc: str) -> Fault:
    """Every start of a pod whose name begins with `stuck` hangs at that call."""

    def is_stuck(request) -> bool:
        if rpc == "StartContainer":
            containers = {container.id: container for container in machine.runtime.containers()}
            return containers[request.container_id].sandbox.config.metadata.name.startswith("stuck")
        config = request.config if rpc == "RunPodSandbox" else request.sandbox_config
        return config.metadata.name.startswith("stuck")

    return machine.runtime.faults.add(Fault(rpc, Hang(), matches=is_stuck, count=None))


async def hang_all(machine: SimulatedNode, wanted: DrivenPodSource, fault: Fault) -> None:
    """More starts than there are turns hang, and hold every turn there is."""
    wanted.add(*(pod(f"stuck-{number}") for number in range(HUNG)))
    await until(machine, lambda: fault.hits == SLOTS)


@pytest.mark.parametrize("rpc", ["RunPodSandbox", "CreateContainer", "StartContainer"])
def test_hung_starts_do_not_keep_others_from_starting(rpc):
    machine = node()
    fault = hang_starts_of(machine, rpc)

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=2 * SLOTS) as running:
            await hang_all(machine, wanted, fault)
            wanted.add(*(pod(f"well-{number}") for number in range(10)))
            turns = -(-HUNG // SLOTS)
            names = [f"well-{number}" for number in range(10)]
            within = LONGEST_STEP * turns + SECOND
            await until(machine, lambda: all(is_ready(running, name) for name in names), within=within)
            # Those that come later wait for nobody: what hangs has lost its turn.
            wanted.add(pod("late"))
            await until(machine, lambda: is_ready(running, "late"))
            assert fault.hits == HUNG
            fault.release()
            stuck = [f"stuck-{number}" for number in range(HUNG)]
            await until(machine, lambda: all(is_ready(running, name) for name in stuck), within=60 * SECOND)

    run_virtual(story())


@pytest.mark.parametrize("hangs", [False, True], ids=["a slow registry", "a pull that hangs"])
def test_pulls_keep_no_other_pod_from_starting(hangs):
    machine = node()
    if hangs:
        machine.runtime.faults.add(Fault("PullImage", Hang(), count=None))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=1) as running:
            wanted.add(*(pod(f"pulls-{number}", make_container("main", image=REMOTE)) for number in range(3)))
            await until(machine, lambda: sum(call.rpc == "PullImage" for call in machine.runtime.calls) == 3)
            wanted.add(pod("well"))
            await until(machine, lambda: is_ready(running, "well"))

    run_virtual(story())


def test_hooks_keep_no_other_pod_from_starting():
    machine = node()
    machine.runtime.faults.add(Fault("ExecSync", Hang(), count=None))
    hook = LifecycleHandler(exec=ExecAction(command=("wait",)))
    hooked = replace(make_container("main"), lifecycle=Lifecycle(post_start=hook))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=1) as running:
            wanted.add(pod("hooked", hooked), pod("well"))
            await until(machine, lambda: is_ready(running, "well"))

    run_virtual(story())


def test_stops_do_not_wait_for_starts():
    machine = node()
    fault = hang_starts_of(machine, "RunPodSandbox")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=2 * SLOTS) as running:
            wanted.add(pod("old"))
            await until(machine, lambda: is_ready(running, "old"))
            await hang_all(machine, wanted, fault)
            wanted.remove(PodUID("old"))
            await until(machine, lambda: not machine.runtime.containers())

    run_virtual(story())


def test_ends_and_crash_loops_are_reported_while_starts_hang():
    machine = node(job=in_turn(runs_for(10 * SECOND)), crash=crashes(9, after=10 * SECOND))
    fault = hang_starts_of(machine, "RunPodSandbox")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=2 * SLOTS) as running:
            wanted.add(pod("job", "job", restart_policy="Never"), pod("crash", "crash"))
            await machine.clock.sleep(19 * SECOND)  # the job is done, and the other runs for the second time
            assert status(running, "job").phase == "Succeeded"
            wanted.add(pod("other", "job", restart_policy="Never"))
            await until(machine, lambda: is_ready(running, "other"))
            await hang_all(machine, wanted, fault)
            crashed_at = EPOCH + 20 * SECOND
            await until(
                machine,
                lambda: any(c.state.waiting for c in status(running, "crash").container_statuses),
                within=crashed_at - machine.clock.now() + SECOND / 10,
            )
            waiting = status(running, "crash").container_statuses[0].state.waiting
            assert waiting.reason == "CrashLoopBackOff"

    run_virtual(story())


def test_probes_do_not_wait_for_starts():
    health = Health()
    machine = node(health)
    fault = hang_starts_of(machine, "RunPodSandbox")
    probe = Probe(exec=ExecAction(command=("check",)), period_seconds=1, timeout_seconds=1, failure_threshold=1)
    probed = replace(make_container("main"), readiness_probe=replace(probe, success_threshold=1))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=2 * SLOTS) as running:
            wanted.add(pod("probed", probed))
            await until(machine, lambda: is_ready(running, "probed"), within=3 * SECOND)
            await hang_all(machine, wanted, fault)
            health.is_well = False
            await until(machine, lambda: not is_ready(running, "probed"), within=1.1 * SECOND)

    run_virtual(story())
