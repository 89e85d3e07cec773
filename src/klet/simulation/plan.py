"""A story, drawn from a seed before anything runs: which pods there are, and what happens to them and to the node.

Steps name their victims by a fraction: what is there when the step comes is not known before.
"""

import random
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from klet.cri.errors import Code
from klet.model.probes import ProbeKind
from klet.simulation.host_faults import FailCall, HostEffect, TakeLong
from klet.simulation.pods import API, FILE, PodPlan, plan_pod, with_request, with_rule
from klet.testing.fake_runtime.faults import (
    ANY,
    CallEffect,
    DelayCall,
    DropEvent,
    EventEffect,
    Fail,
    HalfDone,
    Hang,
    Late,
    Repeat,
    Twice,
)

READS = ("ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "ImageStatus", "Status", "ExecSync")
WRITES = (
    "RunPodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PullImage",
)
HOST_PORTS = ("files", "cgroups", "qos", "logs", "memory", "sub paths")


class AddPod(Struct, frozen=True):
    """A source has a pod, new or again."""

    number: int


class RemovePod(Struct, frozen=True):
    """A file is gone; a pod of the API is deleted gracefully."""

    number: int


class ReplacePod(Struct, frozen=True):
    """A file has another content: a new pod under the same name, in one step."""

    number: int
    by: int


class ChangePod(Struct, frozen=True):
    """A pod of the API gets another image in one container."""

    number: int
    container: int


class DebugPod(Struct, frozen=True):
    """A pod of the API gets an ephemeral container."""

    number: int


class EndContainer(Struct, frozen=True):
    """A process ends by itself."""

    pick: float
    exit_code: int
    oom: bool = False


class EndSandbox(Struct, frozen=True):
    """A sandbox's own process dies."""

    pick: float


class FlipProbe(Struct, frozen=True):
    """What the readiness probes of a container say changes; or its present instance is no longer live."""

    number: int
    container: str
    kind: ProbeKind


class BreakCalls(Struct, frozen=True):
    """The next calls of a kind go wrong."""

    rpc: str
    effect: CallEffect
    count: int


class BreakHost(Struct, frozen=True):
    """The next calls of one of the machine's ports go wrong."""

    port: str
    effect: HostEffect
    count: int


class BreakEvents(Struct, frozen=True):
    """The next events go wrong."""

    effect: EventEffect
    count: int


class CutStreams(Struct, frozen=True):
    """The runtime's event streams break, as when it restarts."""


class KillAtCall(Struct, frozen=True):
    """`kill -9`, after that many further calls to the outside: before the last one's effect or after it.

    With no call to wait for it comes at once. The agent is started again after `down`.
    """

    calls: int
    after_effect: bool
    down: timedelta


class KillAtStep(Struct, frozen=True):
    """`kill -9`, after that many further steps of any tasks: the agent may be killed at each of its awaits."""

    steps: int
    down: timedelta


class RebootMachine(Struct, frozen=True):
    """The machine is rebooted: cleanly, or its power is cut. It is back after `down`.

    The power is cut after that many further steps of any tasks, so also in the middle of writes.
    """

    clean: bool
    steps: int
    down: timedelta


class StepClock(Struct, frozen=True):
    """The wall clock is set."""

    by: timedelta


PodStep: TypeAlias = AddPod | RemovePod | ReplacePod | ChangePod | DebugPod
RuntimeStep: TypeAlias = EndContainer | EndSandbox | BreakCalls | BreakEvents | CutStreams
Step: TypeAlias = PodStep | RuntimeStep | FlipProbe | BreakHost | KillAtCall | KillAtStep | RebootMachine | StepClock


class Timed(Struct, frozen=True):
    """A step and when it comes, after the start."""

    at: timedelta
    step: Step


class StoryPlan(Struct, frozen=True, kw_only=True):
    """Everything that is random in a story, but for the agent's own jitter."""

    seed: int
    pods: tuple[PodPlan, ...]
    steps: tuple[Timed, ...]
    lasts: timedelta
    """How long things may go wrong; then everything has to settle."""
    latency: timedelta
    view_lag: timedelta
    pull_time: timedelta
    longest_backoff: timedelta
    parallel_starts: int
    lingering: float
    """How many of the calls that were given up go on in the runtime."""
    cri_events: bool
    """The runtime has the CRI's event stream."""
    no_events: bool
    """The streams are open and silent, for good."""
    restart_all: bool
    """The gate RestartAllContainersOnContainerExits is on, and some pods have such a rule."""


def make_plan(seed: int) -> StoryPlan:
    """Draw a story."""
    rng = random.Random(seed)
    lasts = rng.uniform(20, 90)
    # Of its own, so that the other stories stay what they are.
    rules = random.Random(f"restart all {seed}")
    restart_all = rules.random() < 0.5
    requests = random.Random(f"requests {seed}")
    drawn = _Drawing(rng, lasts, rules=rules if restart_all else None, requests=requests)
    for _ in range(rng.randint(2, 5)):
        drawn.add_pod(rng.uniform(0, lasts * 0.5))
    trouble = rng.choice((0, 3, 7, 14))
    for _ in range(trouble):
        drawn.steps.append(Timed(_at(rng.uniform(0, lasts)), _trouble(rng)))
    for _ in range(rng.choices((0, 1, 2, 3), (3, 4, 3, 1))[0]):
        drawn.steps.append(Timed(_at(rng.uniform(0, lasts)), _kill(rng)))
    # Of their own, too.
    boots = random.Random(f"reboots {seed}")
    for _ in range(boots.choices((0, 1, 2), (5, 4, 1))[0]):
        drawn.steps.append(Timed(_at(boots.uniform(0, lasts)), _reboot(boots)))
    return StoryPlan(
        seed=seed,
        pods=tuple(drawn.pods),
        steps=tuple(sorted(drawn.steps, key=lambda timed: timed.at)),
        lasts=_at(lasts),
        latency=timedelta(milliseconds=rng.choice((1, 1, 20, 200))),
        view_lag=timedelta(milliseconds=rng.choice((0, 0, 3, 40))),
        pull_time=timedelta(milliseconds=rng.randint(0, 5000)),
        longest_backoff=timedelta(seconds=rng.choice((10, 20, 40))),
        parallel_starts=rng.choice((1, 2, 8)),
        lingering=rng.choice((0.0, 0.0, 0.5, 1.0)),
        cri_events=rng.random() < 0.3,
        no_events=rng.random() < 0.04,
        restart_all=restart_all,
    )


class _Drawing:
    """Pods with their own stories, as they are drawn."""

    def __init__(
        self, rng: random.Random, lasts: float, *, rules: random.Random | None, requests: random.Random
    ) -> None:
        self.pods: list[PodPlan] = []
        self.steps: list[Timed] = []
        self._rng = rng
        self._rules = rules
        self._requests = requests
        self._lasts = lasts

    def add_pod(self, at: float) -> None:
        rng = self._rng
        source = FILE if rng.random() < 0.6 else API
        number = self._new_pod(f"pod-{len(self.pods)}", source)
        self._step(at, AddPod(number))
        while at < self._lasts and rng.random() < 0.6:
            at = self._go_on(number, source, at + rng.uniform(0, self._lasts * 0.6))
            number = len(self.pods) - 1 if source == FILE else number

    def _go_on(self, number: int, source: str, at: float) -> float:
        """Return one more thing that happens to a pod; when it is over."""
        rng = self._rng
        kind = rng.random()
        if source == API and kind < 0.35:
            self._step(at, ChangePod(number, container=rng.randrange(3)))
        elif source == API and kind < 0.55:
            self._step(at, DebugPod(number))
        elif source == API:
            self._step(at, RemovePod(number))
            return self._lasts
        elif kind < 0.5:
            name = self.pods[number].pod.metadata.name
            self._step(at, ReplacePod(number, by=self._new_pod(name, source)))
        elif kind < 0.75:
            self._step(at, RemovePod(number))
            return self._lasts
        else:
            self._step(at, RemovePod(number))
            at += rng.choice((0.0, 0.5, 5.0, 20.0)) * rng.random()
            self._step(at, AddPod(number))
        return at

    def _new_pod(self, name: str, source: str) -> int:
        number = len(self.pods)
        planned = plan_pod(self._rng, number=number, name=name, source=source)
        if self._rules is not None:
            planned = with_rule(self._rules, planned)
        planned = with_request(self._requests, planned)
        self.pods.append(planned)
        for container in (*planned.pod.spec.init_containers, *planned.pod.spec.containers):
            if container.readiness_probe is not None:
                self._flips(number, container.name, ProbeKind.READINESS, most=3)
            if container.liveness_probe is not None:
                self._flips(number, container.name, ProbeKind.LIVENESS, most=2)
        return number

    def _flips(self, number: int, container: str, kind: ProbeKind, *, most: int) -> None:
        for _ in range(self._rng.randrange(most + 1)):
            self._step(self._rng.uniform(0, self._lasts), FlipProbe(number, container, kind))

    def _step(self, at: float, step: Step) -> None:
        if at < self._lasts:
            self.steps.append(Timed(_at(at), step))


def _at(seconds: float) -> timedelta:
    return timedelta(milliseconds=round(seconds * 1000))


def _kill(rng: random.Random) -> KillAtCall | KillAtStep:
    down = _at(rng.choice((0.0, 1.0, 30.0)) * rng.random())
    kind = rng.random()
    if kind < 0.5:
        return KillAtStep(steps=rng.randint(0, 400), down=down)
    calls = 0 if kind < 0.55 else rng.randint(1, 50)
    return KillAtCall(calls=calls, after_effect=rng.random() < 0.5, down=down)


def _reboot(rng: random.Random) -> RebootMachine:
    return RebootMachine(clean=rng.random() < 0.4, steps=rng.randint(0, 400), down=_at(rng.choice((1.0, 20.0))))


def _trouble(rng: random.Random) -> Step:
    kind = rng.random()
    if kind < 0.25:
        return EndContainer(rng.random(), rng.choice((0, 1, 137)), oom=rng.random() < 0.2)
    if kind < 0.33:
        return EndSandbox(rng.random())
    if kind < 0.45:
        return BreakHost(rng.choice(HOST_PORTS), _host_effect(rng), count=rng.choice((1, 1, 3, 10)))
    if kind < 0.76:
        rpc = rng.choice((*WRITES, *WRITES, *READS, ANY))
        return BreakCalls(rpc, _call_effect(rng), count=rng.choice((1, 1, 2, 5)))
    if kind < 0.9:
        return BreakEvents(_event_effect(rng), count=rng.choice((1, 3, 10, 50)))
    if kind < 0.95:
        return CutStreams()
    return StepClock(timedelta(seconds=rng.uniform(-2, 2)))


def _call_effect(rng: random.Random) -> CallEffect:
    some_time = timedelta(milliseconds=rng.choice((5, 300, 4000, 15000)))
    # Never NotFound: a runtime that denies what it has cannot be kept from running it twice.
    code = rng.choice((Code.UNKNOWN, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED))
    return rng.choice(
        (
            Fail(code),
            Fail(code),
            HalfDone(),
            HalfDone(Code.UNKNOWN),
            DelayCall(some_time),
            DelayCall(some_time, after_effect=True),
            Hang(after_effect=rng.random() < 0.5),
            Twice(),
        )
    )


def _host_effect(rng: random.Random) -> HostEffect:
    some_time = timedelta(milliseconds=rng.choice((5, 300, 4000)))
    return rng.choice((FailCall(), FailCall(after_effect=True), TakeLong(some_time)))


def _event_effect(rng: random.Random) -> EventEffect:
    return rng.choice((DropEvent(), DropEvent(), Late(timedelta(milliseconds=rng.choice((1, 100, 5000)))), Repeat()))
