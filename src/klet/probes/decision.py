"""One round of one probe as pure decisions (doProbe of upstream's probe worker).

`begin_round` decides from the reported status alone. When it returns `Run`, the probe is run and `end_round` judges
its outcome. What a round makes is a struct, since each costs a tenth of a dataclass to make.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from klet.api.container_status import ContainerStatus
from klet.api.pod import PodStatus
from klet.model.probes import ProbeKind, ProbeResult
from klet.model.readiness import is_older_than_agent
from klet.model.runtime import ContainerId
from klet.probes.handler import ProbeAnswer, ProbeOutcome

INITIAL = {
    ProbeKind.READINESS: ProbeResult.FAILURE,
    ProbeKind.LIVENESS: ProbeResult.SUCCESS,
    ProbeKind.STARTUP: ProbeResult.UNKNOWN,
}


class ProbeRules(Struct, frozen=True, kw_only=True):
    """What stays the same in all rounds of a probe."""

    kind: ProbeKind
    container: str
    is_sidecar: bool = False
    initial_delay: timedelta = timedelta()
    success_threshold: int = 1
    failure_threshold: int = 3
    restarts: Callable[[int, PodStatus], bool]
    """Whether an exit with that code is followed by another start, by the reported status of the pod."""
    agent_started: datetime


class ProbeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a probe from round to round."""

    id: ContainerId | None = None
    on_hold: bool = False
    """Do not probe this instance any more."""
    last: ProbeResult | None = None
    count: int = 0
    """How many times in a row the last result came. A new instance does not reset it."""


class Run(msgspec.Struct, frozen=True):
    """Run the probe now."""


class ProbeWait(msgspec.Struct, frozen=True):
    """Do nothing until the next round, or until an earlier instant."""

    until: datetime | None = None


class Stop(msgspec.Struct, frozen=True):
    """End the worker: there will never be anything to probe again."""


class Write(msgspec.Struct, frozen=True):
    """A result to put on the board; None removes it."""

    id: ContainerId
    result: ProbeResult | None


Next: TypeAlias = Run | ProbeWait | Stop


class Round(msgspec.Struct, frozen=True):
    """What a round changes, and what comes next."""

    state: ProbeState
    next: Next
    writes: tuple[Write, ...] = ()


def begin_round(
    rules: ProbeRules, state: ProbeState, reported: PodStatus | None, *, is_deleted: bool, now: datetime
) -> Round:
    """Decide whether to probe, from the reported status of the pod."""
    if reported is None:
        return Round(state, ProbeWait())
    if reported.phase in {"Failed", "Succeeded"}:
        return Round(state, Stop())
    container = find_container(reported, rules.container)
    if container is None:
        return Round(state, ProbeWait())
    instance = instance_of(container)
    writes: tuple[Write, ...] = ()
    if instance != state.id:
        writes = _adopt(rules, state, container, instance)
        state = replace(state, id=instance, on_hold=False)
    if state.on_hold:
        return Round(state, ProbeWait(), writes)
    following, verdict = _judge(rules, container, reported, is_deleted=is_deleted, now=now)
    if verdict is not None:
        writes = (*writes, Write(instance, verdict))
    return Round(state, following, writes)


def end_round(rules: ProbeRules, state: ProbeState, outcome: ProbeOutcome) -> Round:
    """Judge an outcome: a result counts once it came often enough in a row."""
    if outcome.error or state.id is None:
        return Round(state, ProbeWait())
    result = (
        ProbeResult.SUCCESS if outcome.answer in {ProbeAnswer.SUCCESS, ProbeAnswer.WARNING} else ProbeResult.FAILURE
    )
    threshold = rules.success_threshold if result is ProbeResult.SUCCESS else rules.failure_threshold
    count = state.count + 1 if result is state.last else 1
    if count < threshold:
        return Round(ProbeState(id=state.id, last=result, count=count), ProbeWait())
    # A startup probe is done with its first result; a container that failed its liveness probe is about to be killed.
    is_final = rules.kind is ProbeKind.STARTUP or (rules.kind is ProbeKind.LIVENESS and result is ProbeResult.FAILURE)
    after = ProbeState(id=state.id, last=result, count=0 if is_final else count, on_hold=is_final)
    return Round(after, ProbeWait(), (Write(state.id, result),))


def find_container(reported: PodStatus, name: str) -> ContainerStatus | None:
    """Return the status of a container that has an instance."""
    for statuses in (reported.container_statuses, reported.init_container_statuses):
        for status in statuses:
            if status.name == name:
                return status if status.container_id else None
    return None


def instance_of(status: ContainerStatus) -> ContainerId:
    """Return the runtime's own id, without the runtime's name before it."""
    return ContainerId(status.container_id.rpartition("://")[2])


def _adopt(
    rules: ProbeRules, state: ProbeState, container: ContainerStatus, instance: ContainerId
) -> tuple[Write, ...]:
    """Give a new instance the initial result, unless a previous run of the agent probed it: its result stays."""
    writes = [Write(state.id, None)] if state.id is not None else []
    running = container.state.running
    if running is None or not _was_probed_before(rules, container, running.started_at):
        writes.append(Write(instance, INITIAL[rules.kind]))
    elif rules.is_sidecar and rules.kind is ProbeKind.STARTUP and container.started:
        # The containers after a sidecar wait for this result, and its probe will not run again.
        writes.append(Write(instance, ProbeResult.SUCCESS))
    return tuple(writes)


def _was_probed_before(rules: ProbeRules, container: ContainerStatus, started_at: datetime | None) -> bool:
    """Return whether an instance is older than the agent, or its status already has the result of the probe."""
    if is_older_than_agent(started_at, rules.agent_started):
        return True
    match rules.kind:
        case ProbeKind.READINESS:
            return container.ready
        case ProbeKind.STARTUP:
            return bool(container.started)
        case ProbeKind.LIVENESS:
            return False


def _judge(
    rules: ProbeRules, container: ContainerStatus, reported: PodStatus, *, is_deleted: bool, now: datetime
) -> tuple[Next, ProbeResult | None]:
    """Return what comes next for the instance, and a result that needs no probe."""
    running = container.state.running
    if running is None:
        ended = container.state.terminated
        goes_on = ended is None or rules.restarts(ended.exit_code, reported)
        return ProbeWait() if goes_on else Stop(), ProbeResult.FAILURE
    if is_deleted and rules.kind is not ProbeKind.READINESS:
        return Stop(), ProbeResult.SUCCESS
    if running.started_at is not None and _is_delayed(rules, now - running.started_at):
        return ProbeWait(until=_end_of_delay(rules, running.started_at)), None
    if bool(container.started) is (rules.kind is ProbeKind.STARTUP):
        return ProbeWait(), None
    return Run(), None


def _end_of_delay(rules: ProbeRules, started_at: datetime) -> datetime | None:
    """Return when a readiness probe first runs; other probes can kill, so they keep to their period as upstream's."""
    return started_at + rules.initial_delay if rules.kind is ProbeKind.READINESS else None


def _is_delayed(rules: ProbeRules, age: timedelta) -> bool:
    """Return whether the initial delay lasts; only whole seconds of the age count, as upstream."""
    return bool(rules.initial_delay) and timedelta(seconds=int(age.total_seconds())) < rules.initial_delay
