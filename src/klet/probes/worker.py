"""The worker of one probe of one container: probes periodically and writes the results (upstream: prober worker)."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from klet.aio.broadcast import Subscription
from klet.aio.clock import Clock
from klet.api.container import Container
from klet.api.handlers import Probe
from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseId, CauseRecorder, Finding
from klet.model.pods import PodUID, uid_of
from klet.model.probes import ProbeKey, ProbeKind
from klet.model.runtime import ContainerId
from klet.probes.decision import Next, ProbeRules, ProbeState, ProbeWait, Round, Run, Stop, begin_round, end_round
from klet.probes.findings import describe_outcome
from klet.probes.handler import ProbeTarget, Question
from klet.probes.results import ProbeResults
from klet.probes.steps import Steps

DEFAULT_PERIOD = timedelta(seconds=10)
DEFAULT_TIMEOUT = timedelta(seconds=1)
# Seconds. The same failure is not recorded more often than at the API's shortest period.
_REPEAT = 0.999
# Seconds. An event loop may wake a sleeper that much too early; sleeping again for the rest would only cost.
_RESOLUTION = 0.002
# Seconds. Probes that are due within one step wake together: each wake-up of the loop costs more than a small round.
_STEP = 0.02


class ReportedStatuses(Protocol):
    """The reported statuses of the pods: the status board."""

    def get(self, uid: PodUID) -> PodStatus | None: ...

    def changes(self) -> Subscription[PodUID]: ...


class ProbeCarrier(Protocol):
    """Prepares probes."""

    def prepare(self, target: ProbeTarget) -> Question: ...

    def forget(self, pod: Pod, container: str, kind: ProbeKind) -> None:
        """Drop what is kept of a probe that is not run any more."""
        ...


class WorkerPorts(Struct, frozen=True, kw_only=True):
    """What all workers share."""

    statuses: ReportedStatuses
    results: ProbeResults
    prober: ProbeCarrier
    recorder: CauseRecorder
    clock: Clock
    steps: Steps


class _Agreed(Struct, frozen=True, kw_only=True):
    """What the last round that ran the probe began with, and the probe."""

    reported: PodStatus
    is_deleted: bool
    question: Question


class ProbeWorker:
    """Runs one probe until there is nothing left to probe."""

    def __init__(
        self,
        *,
        pod: Pod,
        container: Container,
        probe: Probe,
        rules: ProbeRules,
        period: timedelta,
        delay: timedelta,
        ports: WorkerPorts,
    ) -> None:
        self.pod = pod
        """Newer versions replace it; the probe stays as it was at the start."""
        self._uid = uid_of(pod)
        self._container = container
        self._probe = probe
        self._timeout = timedelta(seconds=probe.timeout_seconds) or DEFAULT_TIMEOUT
        self._rules = rules
        self._period = period.total_seconds()
        self._step_length = min(_STEP, self._period / 10)
        self._ports = ports
        self._state = ProbeState()
        self._due = ports.clock.monotonic() + delay.total_seconds()
        self._again = False
        self._agreed: _Agreed | None = None
        self._recorded: tuple[str, float] | None = None
        self.is_asking = False
        """True during a round: it must not be interrupted."""
        self.has_asked = False
        """False until the first round has begun."""

    @property
    def id(self) -> ContainerId | None:
        """The instance that it last probed."""
        return self._state.id

    async def run(self) -> None:
        """Run the rounds. May be cancelled and run again while no probe is running."""
        clock = self._ports.clock
        while True:
            now = clock.monotonic()
            if self._due - now >= _RESOLUTION:
                await self._ports.steps.sleep_until(self._step())
                continue
            self._due = max(self._due + self._period, now)
            self.is_asking = self.has_asked = True
            try:
                following = await self._round()
            finally:
                self.is_asking = False
            match following:
                case Stop():
                    return
                case ProbeWait(until=datetime() as until):
                    early = clock.monotonic() + (until - clock.now()).total_seconds()
                    self._due = min(self._due, early)
                case _:
                    pass
            if self._again:
                self.hasten()

    def hasten(self) -> None:
        """Make the next round due now; during a round, as soon as it ends."""
        self._again = self.is_asking
        if not self.is_asking:
            self._due = self._ports.clock.monotonic()

    def forget(self) -> None:
        """Remove the result from the board: it is not updated any more."""
        if self._state.id is not None:
            self._ports.results.remove(ProbeKey(self._state.id, self._rules.kind))
        self._ports.prober.forget(self.pod, self._container.name, self._rules.kind)

    def _step(self) -> float:
        """Return the first instant common to all workers at or after the due time; short periods have short steps."""
        return max(self._due, math.ceil(self._due / self._step_length - 1e-3) * self._step_length)

    async def _round(self) -> Next:
        reported = self._ports.statuses.get(self._uid)
        is_deleted = self.pod.metadata.deletion_timestamp is not None
        agreed = self._recall(reported, is_deleted=is_deleted) or self._begin(reported, is_deleted=is_deleted)
        if not isinstance(agreed, _Agreed):
            return agreed
        outcome = await agreed.question()
        ended = end_round(self._rules, self._state, outcome)
        finding = describe_outcome(self.pod, self._rules, self._state, ended, outcome)
        self._apply(ended, cause=self._record(finding, ended) if finding is not None else None)
        return ended.next

    def _recall(self, reported: PodStatus | None, *, is_deleted: bool) -> _Agreed | None:
        """Return the last start of a round if it still holds: the status is the same, and the probe is not on hold."""
        agreed = self._agreed
        if agreed is None or agreed.reported is not reported or agreed.is_deleted is not is_deleted:
            return None
        return None if self._state.on_hold else agreed

    def _begin(self, reported: PodStatus | None, *, is_deleted: bool) -> _Agreed | Next:
        now = self._ports.clock.now()
        begun = begin_round(self._rules, self._state, reported, is_deleted=is_deleted, now=now)
        self._apply(begun)
        self._agreed = None
        if not isinstance(begun.next, Run) or reported is None or begun.state.id is None:
            return begun.next
        target = ProbeTarget(
            pod=self.pod,
            container=self._container,
            id=begun.state.id,
            probe=self._probe,
            pod_ip=reported.pod_ip,
            timeout=self._timeout,
        )
        question = self._ports.prober.prepare(target)
        self._agreed = _Agreed(reported=reported, is_deleted=is_deleted, question=question)
        return self._agreed

    def _apply(self, decided: Round, *, cause: CauseId | None = None) -> None:
        self._state = decided.state
        for write in decided.writes:
            key = ProbeKey(write.id, self._rules.kind)
            if write.result is None:
                self._ports.results.remove(key)
            else:
                self._ports.results.put(self._uid, key, write.result, cause=cause)

    def _record(self, finding: Finding, decided: Round) -> CauseId | None:
        """Record a finding, unless it is only the same again a moment later."""
        now = self._ports.clock.monotonic()
        if self._recorded is not None and not self._changes_board(decided):
            message, at = self._recorded
            if finding.message == message and now - at < _REPEAT:
                return None
        self._recorded = (finding.message, now)
        return self._ports.recorder.record(finding)

    def _changes_board(self, decided: Round) -> bool:
        board = self._ports.results
        return any(board.get(ProbeKey(write.id, self._rules.kind)) is not write.result for write in decided.writes)


def build_rules(
    pod: Pod,
    container: Container,
    kind: ProbeKind,
    probe: Probe,
    *,
    restarts: Callable[[Container, Pod, int, PodStatus], bool],
    agent_started: datetime,
) -> ProbeRules:
    """Return a probe's spec as the rounds need it."""
    return ProbeRules(
        kind=kind,
        container=container.name,
        is_sidecar=any(sidecar.name == container.name for sidecar in pod.spec.init_containers),
        initial_delay=timedelta(seconds=probe.initial_delay_seconds),
        success_threshold=probe.success_threshold,
        failure_threshold=probe.failure_threshold,
        restarts=lambda code, reported: restarts(container, pod, code, reported),
        agent_started=agent_started,
    )


def period_of(probe: Probe) -> timedelta:
    return timedelta(seconds=probe.period_seconds) or DEFAULT_PERIOD
