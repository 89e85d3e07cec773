"""Runs one story: a simulated machine, agents that start and crash on it, and all that goes wrong around them."""

import asyncio
import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar, assert_never

from msgspec import Struct

from klet.app.node import NodeSpecification, build_node
from klet.app.wiring import Agent
from klet.checkpoint.errors import CheckpointError
from klet.cri.client import CriClient
from klet.errors import KletError
from klet.host.errors import CgroupError, HostError
from klet.model.features import PodFeatures
from klet.model.pods import PodUID
from klet.model.probes import ProbeKind
from klet.node.boots import BootKeeper
from klet.runtime.config.sub_paths import SubPathError
from klet.simulation import plan as steps
from klet.simulation.chronicle import Chronicle
from klet.simulation.commands import Commands
from klet.simulation.fake_host import MemoryFiles
from klet.simulation.host_faults import HostFault, HostFaults
from klet.simulation.invariants import RuntimeWatch, check_leftovers, check_not_live, check_reaction, check_status
from klet.simulation.killable import KillableTransport, KillSwitch
from klet.simulation.node import SimulatedNode, simulated_settings
from klet.simulation.plan import RuntimeStep, Step, StoryPlan, make_plan
from klet.simulation.pods import API, FILE, LOADED, choose_life, command_results_of, registry
from klet.simulation.reboots import check_reboots
from klet.simulation.room import check_rejection, is_turned_away
from klet.simulation.settled import Holdings, find_untraced, unsettled
from klet.simulation.sources import SimulatedSources
from klet.simulation.story_text import format_story
from klet.sources.config import PodConfig
from klet.testing.fake_runtime import (
    ANY,
    DropEvent,
    EventFault,
    FakeRuntime,
    Fault,
    Features,
    MemorySink,
    Script,
)
from klet.testing.fake_runtime.pump import Pump, timing
from klet.testing.fake_runtime.script import Latency
from klet.testing.in_process import REQUEST_TIMEOUT, InProcessTransport
from klet.testing.loop import EPOCH, StuckError, VirtualClock, VirtualLoop, run_virtual

T = TypeVar("T")

SHORTEST_CALL = 20
"""Microseconds. No two containers are created in one microsecond: their order would not show in their times."""
PORT_ERRORS: Mapping[str, Callable[[str], KletError]] = {
    "cgroups": CgroupError,
    "qos": CgroupError,
    "memory": CheckpointError,
    "sub paths": partial(SubPathError, "prepare subPath"),
}
"""What a port fails with, if it is not HostError."""
POLL = timedelta(seconds=2)
SETTLES_WITHIN = timedelta(minutes=10)
SETTLES_WITHOUT_EVENTS = timedelta(minutes=40)
"""Each change is seen at the next relist only."""
STAYS = timedelta(seconds=70)
"""Longer than the safety relist."""

Alteration = Callable[[Agent], None]
"""Done to each agent before it runs: how tests plant bugs."""


class StoryOutcome(Struct, frozen=True, kw_only=True):
    """The result of a story."""

    seed: int
    violations: tuple[str, ...]
    containers: int
    """How many there were."""
    took: timedelta
    """In virtual time."""
    story: tuple[str, ...]
    """What happened, if something was violated."""


def leave_as_is(_agent: Agent) -> None:
    """Alter nothing."""


def run_seed(seed: int, *, alter: Alteration = leave_as_is, verbose: bool = False) -> StoryOutcome:
    """Run the story of a seed. The same seed gives the same story."""
    plan = make_plan(seed)
    story = Story(plan, alter=alter)
    chronicle = story.chronicle
    try:
        run_virtual(story.run(), seed=seed)
    except StuckError as error:
        chronicle.violations.append(str(error))
    wants_story = verbose or bool(chronicle.violations)
    return StoryOutcome(
        seed=seed,
        violations=tuple(chronicle.violations),
        containers=chronicle.instances(),
        took=story.took,
        story=format_story(plan, story.node.journal.all(), story.node.runtime.history) if wants_story else (),
    )


class SteppedClock(VirtualClock):
    """The agent's clock: its wall time can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = timedelta()

    def now(self) -> datetime:
        true = VirtualClock.now(self)
        return true + self.offset if self.offset else true


def _latency(longest: timedelta) -> Latency:
    most = longest // timedelta(microseconds=1)
    return lambda _rpc, rng: timedelta(0, 0, SHORTEST_CALL + int(most * rng.random()))


def _wrap(faults: HostFaults, kill_switch: KillSwitch, port: T, name: str) -> T:
    """Return a port of the machine as one run of the agent has it."""
    return faults.wrap(port, name, gate=kill_switch, error=PORT_ERRORS.get(name, HostError))


class Story:
    """Carries out a plan and checks the invariants."""

    def __init__(self, plan: StoryPlan, *, alter: Alteration) -> None:
        self._plan = plan
        self._alter = alter
        self._random = random.Random(f"story {plan.seed}")
        sink = MemorySink()
        commands = Commands(command_results_of(plan.pods))
        runtime = FakeRuntime(
            start=EPOCH,
            seed=plan.seed,
            script=Script(
                lives=choose_life(plan.pods),
                execs=commands.answer,
                registry=registry(pull_time=plan.pull_time),
                latency=_latency(plan.latency),
            ),
            features=Features(container_events=plan.cri_events, view_lag=plan.view_lag),
            sink=sink,
            images=LOADED,
        )
        self._clock = SteppedClock()
        self._true_clock = VirtualClock()
        self.node = SimulatedNode(clock=self._clock, runtime=runtime, files=MemoryFiles(sink=sink))
        self.chronicle = Chronicle(runtime=runtime, commands=commands, clock=self._true_clock, start=EPOCH)
        self._host_faults = HostFaults(clock=self._true_clock)
        self._watch = RuntimeWatch(chronicle=self.chronicle, runtime=runtime, lingering=plan.lingering > 0)
        self._sources = SimulatedSources(
            plan=plan, chronicle=self.chronicle, clock=self._clock, randomness=self._random
        )
        self._faults: list[Fault | EventFault | HostFault] = []
        self._hits = 0
        self._kill_switch = KillSwitch()
        self._down = timedelta()
        self._reboot: steps.RebootMachine | None = None
        """That comes with the next end of the agent."""
        self._agent: Agent | None = None
        self._boots: BootKeeper | None = None
        self.took = timedelta()

    @property
    def _loop(self) -> VirtualLoop:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("a story runs in virtual time")
        return loop

    async def run(self) -> None:
        runtime = self.node.runtime
        with timing(runtime, self._true_clock, lingers=self._lingers) as pump:
            async with asyncio.TaskGroup() as group:
                restarts = group.create_task(self._restart_agents(pump), name="restarts")
                await self._run_steps()
                if not self.chronicle.violations:
                    await self._settle("after the faults")
                if not self.chronicle.violations:
                    await self._stay_settled()
                if not self.chronicle.violations:
                    await self._end_all()
                self.took = self.chronicle.now - EPOCH
                restarts.cancel()
        self._check_journal()

    async def _restart_agents(self, pump: Pump) -> None:
        """Start an agent, wait until it is killed, cancel its tasks, start the next."""
        mine = asyncio.all_tasks()
        while True:
            self.chronicle.begin_agent_run()
            self._kill_switch = KillSwitch()
            task_count = len(asyncio.all_tasks())
            async with asyncio.TaskGroup() as group:
                agent = group.create_task(self._run_agent(pump, self._kill_switch), name="agent")
                await self._kill_switch.killed.wait()
                while not agent.done():
                    # What a killed agent still waits for while its tasks end never comes.
                    agent.cancel()
                    await self._true_clock.sleep(timedelta())
            if self._agent is not None:
                self._sources.close(self._agent)
            self._agent = None
            self.chronicle.disturb()
            left = [task.get_name() for task in asyncio.all_tasks() if task not in mine]
            if len(asyncio.all_tasks()) > task_count:
                self.chronicle.violate(f"the agent left tasks behind: {left}")
            if self._reboot is not None:
                await self._reboot_machine(self._reboot)
            await self._clock.sleep(self._down)

    async def _reboot_machine(self, reboot: steps.RebootMachine) -> None:
        self._reboot = None
        if reboot.clean and self._boots is not None:
            await self._boots.note_stopped()
        known = self.node.boot.left
        if known is not None:  # otherwise no agent has ever run
            self.chronicle.note_reboot(has_run=known.boot_id == self.node.machine.boot_id)
        self.node.reboot(clean=reboot.clean)
        self.chronicle.disturb()

    async def _run_agent(self, pump: Pump, kill_switch: KillSwitch) -> None:
        """Run the agent once. An exception that escapes from a part is a bug."""
        transport = KillableTransport(
            inner=InProcessTransport(runtime=self.node.runtime, pump=pump),
            kill_switch=kill_switch,
            observer=self._watch,
        )
        config = PodConfig(sources=(FILE, API), recorder=self.node.journal, clock=self._clock)
        self._boots = boots = self.node.open_boots()
        reboot = await self.node.compare_boots(boots)
        ports = self.node.build_ports(
            CriClient(runtime=transport, images=transport, timeout=REQUEST_TIMEOUT),
            config,
            seed=self._plan.seed * 1000 + self.chronicle.agent_run,
            wrap=partial(_wrap, self._host_faults, kill_switch),
            reboot=reboot,
        )
        settings = simulated_settings(
            self._plan.parallel_starts,
            longest_backoff=self._plan.longest_backoff,
            features=PodFeatures(restart_all=self._plan.restart_all),
        )
        node = build_node(NodeSpecification(settings=settings, ports=ports))
        self._agent = agent = node.agent
        self._alter(agent)
        await boots.note_running()
        try:
            async with asyncio.TaskGroup() as group:
                for part in node.parts:
                    group.create_task(part.run(), name=type(part).__name__)
                group.create_task(self._follow_statuses(agent), name="statuses")
                group.create_task(self._sources.open(config), name="sources")
        except Exception as error:  # noqa: BLE001 - whatever it is, the story reports it
            self.chronicle.violate(f"the agent ended: {''.join(traceback.format_exception(error))}")

    async def _follow_statuses(self, agent: Agent) -> None:
        with agent.statuses.changes() as changes:
            async for uid in changes.items():
                if self._kill_switch.killed.is_set():
                    return  # what a killed agent still raises is lost
                status = agent.statuses.get(uid)
                if not is_turned_away(self._sources.statuses.get(uid)):
                    check_rejection(self.chronicle, uid, status)
                check_status(self.chronicle, uid, status)
                if status is not None:
                    self._sources.statuses[uid] = status

    async def _run_steps(self) -> None:
        if self._plan.no_events:
            self._silence_events()
        for timed in self._plan.steps:
            await self._sleep_until(EPOCH + timed.at)
            if self.chronicle.violations:
                return
            self._apply(timed.step)
        await self._sleep_until(EPOCH + self._plan.lasts)
        self.node.runtime.faults.clear()
        self._host_faults.clear()
        if self._plan.no_events:
            self._silence_events()
        self._kill_switch.disarm(self._loop)
        self.chronicle.disturb()

    async def _settle(self, when: str) -> None:
        """Wait until everything is as it should be; a story that does not get there is a violation."""
        within = SETTLES_WITHOUT_EVENTS if self._plan.no_events else SETTLES_WITHIN
        give_up = self.chronicle.now + within
        while any(self._unsettled()) and not self.chronicle.violations:
            if self.chronicle.now > give_up:
                self.chronicle.violate(f"not settled {when} within {within}: {'; '.join(self._unsettled())}")
            await self._sleep_until(self.chronicle.now + POLL)

    async def _stay_settled(self) -> None:
        """Check that what is settled stays so, and that no further call changes it."""
        writes = self.chronicle.writes
        await self._clock.sleep(STAYS)
        if any(self._unsettled()):
            self.chronicle.violate(f"settled, and then not any more: {'; '.join(self._unsettled())}")
        if self.chronicle.writes != writes:
            self.chronicle.violate(f"everything was settled, and {self.chronicle.writes - writes} calls changed it")

    async def _end_all(self) -> None:
        """Remove all pods; then nothing may be left."""
        self._sources.remove_all()
        await self._settle("after the end of all pods")

    def _unsettled(self) -> Iterator[str]:
        files = self.node.files
        agent = self._agent
        holdings = Holdings(
            directories=frozenset(files.pods),
            logs=frozenset(files.pods_with_logs()),
            cgroups=frozenset(self.node.cgroups.pods),
            mounts=self.node.volumes.owners(),
            untraced=find_untraced(self.node.runtime, self.node.pull_files),
        )
        status_of = agent.statuses.get if agent is not None else self._sources.statuses.get
        return unsettled(self.chronicle, self.node.runtime, holdings, status_of)

    async def _sleep_until(self, at: datetime) -> None:
        """Sleep, and look at what came of it."""
        await self._true_clock.sleep_until(at)
        self.node.runtime.pass_time(self._true_clock.now())
        hits = sum(fault.hits for fault in self._faults)
        if hits != self._hits:
            self._hits = hits
            self.chronicle.disturb()
        if self._agent is not None:
            self._sources.remove_finished(self._agent.ledger)
        check_leftovers(self.chronicle)
        if self._agent is not None:
            if self._plan.no_events:
                self.chronicle.disturb()
            check_reaction(self.chronicle, self._sources.statuses)
            check_not_live(self.chronicle)

    def _apply(self, step: Step) -> None:
        match step:
            case steps.AddPod() | steps.RemovePod() | steps.ReplacePod() | steps.ChangePod() | steps.DebugPod():
                self._sources.apply(step)
            case steps.KillAtCall(calls, after_effect, down):
                self._down = down
                self._kill_switch.kill_at_call(calls=calls, after_effect=after_effect)
            case steps.KillAtStep(count, down):
                self._down = down
                self._kill_switch.kill_after_steps(self._loop, count)
            case steps.RebootMachine(clean, count, down):
                self._down = down
                self._reboot = step
                if clean:
                    self._kill_switch.kill_at_call(calls=0, after_effect=False)
                else:
                    self._kill_switch.kill_after_steps(self._loop, count)
            case steps.FlipProbe(number, container, kind):
                self._flip_probe(self._plan.pods[number].uid, container, kind)
            case steps.BreakHost(port, effect, count):
                self._faults.append(self._host_faults.add(HostFault(port, effect, count)))
            case steps.StepClock(by):
                self._clock.offset += by
            case _:
                self._apply_to_runtime(step)

    def _flip_probe(self, uid: PodUID, container: str, kind: ProbeKind) -> None:
        commands = self.chronicle.commands
        if kind is ProbeKind.READINESS:
            commands.flip_readiness(uid, container, now=self.chronicle.now)
            return
        self.chronicle.look()
        history = self.chronicle.histories.get(uid)
        newest = history.newest(container) if history is not None else None
        if newest is not None and newest.is_alive:
            commands.fail_liveness(newest.attempt, now=self.chronicle.now)

    def _apply_to_runtime(self, step: RuntimeStep) -> None:
        runtime = self.node.runtime
        match step:
            case steps.EndContainer(pick, exit_code, oom):
                alive = [each.container.id for each in self.chronicle.alive()]
                if alive:
                    runtime.end_container(alive[int(pick * len(alive))], exit_code, oom=oom)
            case steps.EndSandbox(pick):
                self._end_sandbox(pick)
            case steps.BreakCalls(rpc, effect, count):
                self.chronicle.probes_may_fail |= rpc in {ANY, "ExecSync"}
                self._faults.append(runtime.faults.add(Fault(rpc, effect, count=count)))
            case steps.BreakEvents(effect, count):
                self._faults.append(runtime.faults.add_to_events(EventFault(ANY, effect, count=count)))
            case steps.CutStreams():
                self.chronicle.disturb()
                runtime.disconnect()
            case unknown:
                assert_never(unknown)

    def _end_sandbox(self, pick: float) -> None:
        ready = [sandbox.id for sandbox in self.node.runtime.sandboxes() if sandbox.is_ready]
        if ready:
            victim = ready[int(pick * len(ready))]
            self.chronicle.ended_sandboxes.add(victim)
            self.node.runtime.kill_sandbox(victim)

    def _silence_events(self) -> None:
        self.node.runtime.faults.add_to_events(EventFault(ANY, DropEvent(), count=None))

    def _lingers(self, _rpc: str) -> bool:
        return self._random.random() < self._plan.lingering

    def _check_journal(self) -> None:
        """Check that every consequence names a cause that is there."""
        causes = self.node.journal.all()
        known = {cause.id for cause in causes}
        for cause in causes:
            if cause.parent is not None and cause.parent not in known:
                self.chronicle.violate(f"{cause.finding.decision} of {cause.finding.subject} has no parent")
        check_reboots(self.chronicle, causes)
