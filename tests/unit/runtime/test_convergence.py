"""Carrying out the actions again and again comes to rest, and never has two instances of a container run at once.

The world here is as simple as can be: what is started runs, plain init containers end well, what is killed ends, and a
new instance passes its probes. Where it begins is random: pods with init containers, sidecars, ephemeral containers,
policies and rules of their own, and whatever the runtime and the probes may show.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from klet.api.container import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EphemeralContainer,
)
from klet.api.handlers import Probe
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxRecord
from klet.runtime.actions import PodActions, compute_pod_actions
from klet.runtime.restart import should_restart
from klet.testing.builders import make_container, make_pod, make_record, make_sandbox, make_status

RUNNING, EXITED, CREATED, UNKNOWN = (
    RuntimeContainerState(name) for name in ("running", "exited", "created", "unknown")
)
POLICIES = ("Always", "OnFailure", "Never")
CODES = (0, 1, 42, 137)
Records: TypeAlias = dict[str, list[ContainerRecord]]


@dataclass
class World:
    """A pod and what the runtime has of it; newest records first."""

    pod: Pod
    sandboxes: list[SandboxRecord]
    records: Records
    probes: dict[ProbeKey, ProbeResult] = field(default_factory=dict)

    def status(self) -> PodRuntimeStatus:
        every = [record for records in self.records.values() for record in records]
        return make_status(self.pod, *every, sandboxes=self.sandboxes)

    def newest(self, name: str) -> ContainerRecord | None:
        return next(iter(self.records.get(name, ())), None)

    def running(self) -> list[str]:
        return [r.name for records in self.records.values() for r in records if r.state is RUNNING]

    def apply(self, actions: PodActions) -> None:
        if actions.kill_pod:
            self._kill_everything(starts_over=actions.create_sandbox)
        else:
            for kill in actions.kill:
                record = self.newest(kill.name)
                assert record is not None
                assert record.id == kill.id, "only the newest instance is killed"
                assert record.state in {RUNNING, UNKNOWN}, "what does not run is not killed"
                self._end(kill.name)
        if actions.kill_pod and not actions.create_sandbox:
            return  # there is no place to start in
        if actions.create_sandbox:
            self.sandboxes.insert(0, make_sandbox(attempt=actions.attempt, host_network=self.pod.spec.host_network))
        spec = self.pod.spec
        for index in actions.start_ephemeral:
            self._start(spec.ephemeral_containers[index].name, RUNNING)
        for index in actions.start_init:
            container = spec.init_containers[index]
            self._start(container.name, RUNNING if is_sidecar(container) else EXITED)
        for index in actions.start:
            self._start(spec.containers[index].name, RUNNING)

    def settle(self) -> bool:
        """Time passes: startup probes pass, plain init containers end well. Say whether that is news."""
        is_news = False
        for name in [c.name for c in self.pod.spec.init_containers if not is_sidecar(c)]:
            newest = self.newest(name)
            if newest is not None and newest.state is RUNNING:
                self.records[name][0] = replace(newest, state=EXITED)
                is_news = True
        ids = [record.id for records in self.records.values() for record in records]
        for key in [ProbeKey(container, ProbeKind.STARTUP) for container in ids]:
            is_news = is_news or self.probes.get(key) is not ProbeResult.SUCCESS
            self.probes[key] = ProbeResult.SUCCESS
        return is_news

    def _kill_everything(self, *, starts_over: bool) -> None:
        for name in self.records:
            newest = self.newest(name)
            if newest is not None and newest.state is RUNNING:
                self._end(name)
        self.sandboxes = [replace(sandbox, ready=False) for sandbox in self.sandboxes]
        if starts_over:
            for container in self.pod.spec.init_containers:
                self.records.pop(container.name, None)

    def _end(self, name: str) -> None:
        self.records[name][0] = replace(self.records[name][0], state=EXITED, exit_code=137, reason="Error")

    def _start(self, name: str, state: RuntimeContainerState) -> None:
        known = self.records.setdefault(name, [])
        assert name not in self.running(), f"{name} is started while it runs"
        if known and known[0].state is CREATED:
            known.pop(0)  # the starter removes what an earlier start left
        # Older than life: purged init containers begin to count again, but an id is never used twice.
        known.insert(0, make_record(self.pod, name, state, restarts=self._births()))
        for kind in (ProbeKind.STARTUP, ProbeKind.LIVENESS):
            self.probes[ProbeKey(known[0].id, kind)] = ProbeResult.SUCCESS

    def _births(self) -> int:
        return 100 + max((r.restart_count for records in self.records.values() for r in records), default=0)


@st.composite
def containers(draw: st.DrawFn, prefix: str, *, least: int, most: int, init: bool) -> tuple[Container, ...]:
    made = []
    for index in range(draw(st.integers(least, most))):
        own = draw(st.sampled_from((None, None, "Always", *POLICIES)))
        rules = draw(st.lists(_rules(), max_size=2)) if own is not None and not (init and own == "Always") else []
        container = replace(
            make_container(f"{prefix}{index}", restart_policy=own),
            restart_policy_rules=tuple(rules),
            startup_probe=draw(st.sampled_from((None, Probe()))),
            liveness_probe=draw(st.sampled_from((None, Probe()))),
        )
        made.append(container)
    return tuple(made)


def _rules() -> st.SearchStrategy[ContainerRestartRule]:
    codes = st.builds(
        ContainerRestartRuleOnExitCodes,
        operator=st.sampled_from(("In", "NotIn")),
        values=st.lists(st.sampled_from(CODES), min_size=1, max_size=3, unique=True).map(tuple),
    )
    actions = st.sampled_from(("Restart", "Restart", "RestartAllContainers"))
    return st.builds(ContainerRestartRule, action=actions, exit_codes=st.none() | codes)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    regular = draw(containers("main", least=1, most=3, init=False))
    init = draw(containers("init", least=0, most=3, init=True))
    pod = make_pod(*regular, init=init, restart_policy=draw(st.sampled_from(POLICIES)))
    debuggers = tuple(EphemeralContainer(name=f"debug{n}", image="x") for n in range(draw(st.integers(0, 2))))
    host_network = draw(st.booleans())
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=debuggers, host_network=host_network))
    world = World(pod=pod, sandboxes=draw(_sandboxes(host_network=host_network)), records={})
    names = [c.name for c in (*regular, *init)] + [c.name for c in debuggers]
    for name in names:
        world.records[name] = draw(_lives(pod, name))
    for record in [record for records in world.records.values() for record in records]:
        for kind in (ProbeKind.STARTUP, ProbeKind.LIVENESS):
            result = draw(st.sampled_from((None, *ProbeResult)))
            if result is not None:
                world.probes[ProbeKey(record.id, kind)] = result
    return world


@st.composite
def _sandboxes(draw: st.DrawFn, *, host_network: bool) -> list[SandboxRecord]:
    newest_first = []
    for attempt in range(draw(st.integers(0, 2)), 0, -1):
        sandbox = make_sandbox(
            attempt=attempt,
            ready=draw(st.booleans()),
            ip=draw(st.sampled_from(("10.1.0.5", "10.1.0.5", ""))),
            host_network=draw(st.sampled_from((host_network, host_network, not host_network))),
        )
        newest_first.append(sandbox)
    return newest_first


@st.composite
def _lives(draw: st.DrawFn, pod: Pod, name: str) -> list[ContainerRecord]:
    """All instances but the newest have ended."""
    lives: list[ContainerRecord] = []
    for life in range(draw(st.integers(0, 2)), 0, -1):
        state = draw(st.sampled_from((RUNNING, EXITED, CREATED, UNKNOWN))) if not lives else EXITED
        record = make_record(
            pod,
            name,
            state,
            restarts=life,
            exit_code=draw(st.sampled_from(CODES)) if state is EXITED else 0,
            reason=draw(st.sampled_from(("", "OOMKilled"))) if state is EXITED else "",
            spec_hash=draw(st.sampled_from((None, None, None, 1))),
        )
        lives.append(record)
    return lives


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_the_actions_come_to_rest_and_never_double_a_container(world):
    steps = 0
    while True:
        before = (list(world.sandboxes), {name: list(records) for name, records in world.records.items()})
        actions = compute_pod_actions(world.pod, world.status(), probes=world.probes)
        world.apply(actions)
        assert len(world.running()) == len(set(world.running()))
        steps += 1
        assert steps < 30, f"no rest: {actions}"
        if actions.kill_pod and not actions.create_sandbox:
            break  # its work is done, or can never be
        if before == (world.sandboxes, world.records) and not world.settle():
            break
    _check_rest(world, actions)


def _check_rest(world: World, actions: PodActions) -> None:
    """At rest everything that is to run does, or the pod is over and nothing does."""
    if actions.kill_pod:
        assert not world.running()
        return
    assert actions.is_idle
    for container in world.pod.spec.containers:
        record = world.newest(container.name)
        assert record is not None
        assert record.state is RUNNING or not should_restart(container, world.pod, record)
    assert any(not name.startswith(("debug", "init")) for name in world.running()), "nothing keeps the pod alive"
