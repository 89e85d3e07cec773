"""Computes the status of a pod, records what changed for the user, and puts it on the status board."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.allocation.book import AllocationBook
from klet.api.container_status import ContainerStateTerminated
from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseId, CauseRecorder
from klet.model.features import DEFAULT_FEATURES, PodFeatures
from klet.model.network import ip_family
from klet.model.pods import PodUID, is_static, uid_of
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult, ProbeView
from klet.model.qos import compute_qos
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.restart_rules import RESTARTING_ALL
from klet.model.runtime import PodRuntimeStatus, StartFailure
from klet.model.verdicts import Reject
from klet.probes.results import ProbeResults
from klet.runtime.actions import plan_sandbox
from klet.runtime.restart import restartable_names, restarts_after
from klet.status.board import StatusBoard
from klet.status.containers import CONTAINER_CREATING, POD_INITIALIZING
from klet.status.ending import end_status
from klet.status.generate import DEADLINE_EXCEEDED, DEADLINE_MESSAGE, PodStatusInputs, generate_status
from klet.status.phase import FAILED, RestartRule
from klet.status.probed import with_readiness, with_startup
from klet.status.transitions import find_illegal_transition
from klet.sync.deadline import is_past_deadline
from klet.sync.worker_state import StatusChange

logger = logging.getLogger(__name__)

DECIDER = "sync.pod_status"
MOST_FAILURES = 1000


class Probers(Protocol):
    """Knows which probes are run."""

    def workers_of(self, uid: PodUID) -> frozenset[tuple[str, ProbeKind]]: ...


class StartFailures:
    """Why containers could not be started (reason cache). Written by the pod sync only.

    A container that no start was tried for keeps its reason. If there are too many, the least recently used is dropped.
    """

    def __init__(self, *, limit: int = MOST_FAILURES) -> None:
        self._limit = limit
        self._failures: dict[PodUID, dict[str, StartFailure]] = {}
        self._used = OrderedDict[tuple[PodUID, str], None]()

    def get(self, uid: PodUID) -> Mapping[str, StartFailure]:
        known = self._failures.get(uid, {})
        for name in known:
            self._used.move_to_end((uid, name))
        return MappingProxyType(known)

    def note(self, uid: PodUID, failures: Mapping[str, StartFailure], *, started: Iterable[str] = ()) -> bool:
        """Note the results of starts; return whether a reason changed."""
        before = dict(self._failures.get(uid, {}))
        for name in started:
            self._drop(uid, name)
        for name, failure in failures.items():
            self._failures.setdefault(uid, {})[name] = failure
            self._used[uid, name] = None
            self._used.move_to_end((uid, name))
        while len(self._used) > self._limit:
            self._drop(*next(iter(self._used)))
        return self._failures.get(uid, {}) != before

    def forget(self, uid: PodUID) -> None:
        for name in tuple(self._failures.get(uid, ())):
            self._drop(uid, name)

    def _drop(self, uid: PodUID, name: str) -> None:
        if (uid, name) not in self._used:
            return
        del self._used[uid, name]
        known = self._failures[uid]
        del known[name]
        if not known:
            del self._failures[uid]


class StatusFacts(Struct, frozen=True):
    """What is the same for all pods during a run of the agent."""

    runtime_name: Callable[[], str]
    agent_started: datetime
    host_ips: Callable[[], tuple[str, ...]] = tuple
    """The addresses of the node; only an API server gets them."""
    prefer_ipv6: bool = False
    """Whether IPv6 is the primary family of the node: then a pod's address of that family comes first."""
    features: PodFeatures = DEFAULT_FEATURES


class PodStatuses:
    """Writes the status board."""

    def __init__(
        self,
        *,
        board: StatusBoard,
        allocations: AllocationBook,
        failures: StartFailures,
        probes: ProbeResults,
        probers: Probers,
        recorder: CauseRecorder,
        facts: StatusFacts,
        clock: Clock,
    ) -> None:
        self._board = board
        self._allocations = allocations
        self._failures = failures
        self._probes = probes
        self._probers = probers
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._facts = facts
        self._clock = clock

    @property
    def features(self) -> PodFeatures:
        """Return which optional features the statuses show."""
        return self._facts.features

    def report(
        self,
        pod: Pod,
        seen: PodRuntimeStatus,
        *,
        ends_here: bool = False,
        change: StatusChange | None = None,
        cause: CauseId | None = None,
    ) -> PodStatus:
        """Compute the status now, store it, and record what it changed for the user."""
        uid = uid_of(pod)
        previous = self._previous(pod)
        # Only a kubelet writes the start time; the phase Pending comes with every new pod.
        if adopts := not self._board.is_reported(uid) and previous.start_time is not None:
            self._failures.note(uid, reported_failures(previous))
        inputs = PodStatusInputs(
            previous=previous,
            resources=self._allocations.view(pod, seen),
            runtime_name=self._facts.runtime_name(),
            qos_class=previous.qos_class or compute_qos(pod),
            restarts=self._restart_rule(pod),
            needs_sandbox=plan_sandbox(pod, seen).create,
            startable=restartable_names(pod, seen, restart_all=self.features.restart_all),
            failures=self._failures.get(uid),
            probes=self._probes.view(),
            probed=self._probers.workers_of(uid),
            agent_started=self._facts.agent_started,
            ends_here=ends_here,
            is_overdue=is_past_deadline(pod, previous, now=self._clock.now()),
            host_ips=self._facts.host_ips(),
            features=self.features,
            prefer_ipv6=self._facts.prefer_ipv6,
        )
        status = generate_status(pod, seen, inputs)
        if change is not None:
            status = change(status)
        if adopts:
            message = f"a previous run of the agent reported it as {previous.phase}"
            self._decisions.for_pod(pod).record(Reason.ADOPTED, message, parent=cause)
        self._put(pod, status, previous, cause)
        reported = self._board.get(uid)
        return replace(status, start_time=reported.start_time if reported is not None else None)

    def note_probe(self, pod: Pod, key: ProbeKey, result: ProbeResult, *, cause: CauseId | None) -> None:
        """Report a probe result at once; the pod's next sync may be later."""
        known = self._board.get(uid_of(pod))
        if known is None or not self._board.is_reported(uid_of(pod)):
            return
        change = {ProbeKind.READINESS: with_readiness, ProbeKind.STARTUP: with_startup}.get(key.kind)
        status = change(pod, known, key.container, result is ProbeResult.SUCCESS) if change is not None else None
        if status is not None:
            self._put(pod, status, known, cause)

    def reject(self, pod: Pod, rejection: Reject, cause: CauseId) -> None:
        """Report that the node rejected the pod: it has failed."""
        status = PodStatus(
            phase=FAILED,
            reason=str(rejection.reason),
            message=f"Pod was rejected: {rejection.message}",
            qos_class=pod.status.qos_class or compute_qos(pod),
            observed_generation=pod.metadata.generation,
        )
        self._put(pod, status, self._previous(pod), cause)

    def end(self, pod: Pod, *, cause: CauseId | None) -> None:
        """Report the last status of a pod that has ended and released everything (TerminatePod)."""
        known = self._previous(pod)
        self._put(pod, end_status(pod, known), known, cause, is_finished=True)

    def probe_view(self) -> ProbeView:
        return self._probes.view()

    def note_starts(self, uid: PodUID, failures: Mapping[str, StartFailure], *, started: Iterable[str]) -> bool:
        """Note why containers did not start; return whether a reason changed."""
        return self._failures.note(uid, failures, started=started)

    def forget(self, uid: PodUID) -> None:
        self._board.forget(uid)
        self._failures.forget(uid)

    def _previous(self, pod: Pod) -> PodStatus:
        """Return what was reported last; before the first report of this run, the API server's status if it has one."""
        uid = uid_of(pod)
        if pod.status.phase and not is_static(pod) and not self._board.is_reported(uid):
            return pod.status
        return self._board.get(uid) or pod.status

    def _restart_rule(self, pod: Pod) -> RestartRule:
        restart_all = self.features.restart_all
        return lambda container, code: restarts_after(container, pod, code, restart_all=restart_all)

    def _put(
        self, pod: Pod, status: PodStatus, previous: PodStatus, cause: CauseId | None, *, is_finished: bool = False
    ) -> None:
        uid = uid_of(pod)
        problem = find_illegal_transition(
            pod, previous, status, self._restart_rule(pod), restart_all=self.features.restart_all
        )
        if problem is not None:
            logger.warning("Status update on pod aborted", extra={"uid": uid, "error": problem})
            return
        # The deletion of a pod waits for its status, so it is published again each time.
        is_forced = pod.metadata.deletion_timestamp is not None
        if self._board.put(uid, status, previous=previous, is_forced=is_forced, is_finished=is_finished):
            self._record_change(pod, previous, status, cause)

    def _record_change(self, pod: Pod, old: PodStatus, new: PodStatus, cause: CauseId | None) -> None:
        """Record changes of phase and readiness, and ends of containers."""
        for name, ended in find_ends(old, new):
            self._decisions.for_pod(pod, name).record(
                Reason.EXITED,
                describe_end(ended),
                measurements={"exitCode": ended.exit_code},
                since=ended.finished_at,
                parent=cause,
            )
        about = self._decisions.for_pod(pod)
        if old.phase != new.phase:
            message = f"{old.phase or 'new'} -> {new.phase}"
            about.record(Reason.PHASE_CHANGED, message, measurements={"phase": new.phase}, parent=cause)
        if new.reason == DEADLINE_EXCEEDED and old.reason != new.reason:
            about.record(Reason.DEADLINE_EXCEEDED, DEADLINE_MESSAGE, parent=cause)
        if mismatch := describe_family_change(old.host_ip, new.host_ip):
            about.record(Reason.HOST_IPS_IP_FAMILY_MISMATCH, mismatch, parent=cause)
        if is_ready(old) != is_ready(new):
            ready = next(condition for condition in new.conditions if condition.type == "Ready")
            why = "every container is ready" if is_ready(new) else ready.message or ready.reason
            about.record(Reason.READY if is_ready(new) else Reason.NOT_READY, why, parent=cause)


def find_ends(old: PodStatus, new: PodStatus) -> list[tuple[str, ContainerStateTerminated]]:
    """Return the containers that have ended since the old status, by name, with their last state."""
    known = {ended.container_id for _, ended in _ends(old)}
    return [(name, ended) for name, ended in _ends(new) if ended.container_id and ended.container_id not in known]


def describe_family_change(old: str, new: str) -> str:
    """Return what is wrong when the address of the node has become one of the other family; empty if nothing is."""
    if not old or not new or ip_family(old) == ip_family(new):
        return ""
    return (
        f"Kubelet detected an IPv{ip_family(old)} node IP ({old}), but the cloud provider selected an "
        f"IPv{ip_family(new)} node IP ({new}); pass an explicit `--node-ip` to kubelet to fix this."
    )


def describe_end(ended: ContainerStateTerminated) -> str:
    how = f"by signal {ended.signal}" if ended.signal else f"with exit code {ended.exit_code}"
    return f"it ended {how}" + (f" ({ended.reason})" if ended.reason else "")


def _ends(status: PodStatus) -> Iterator[tuple[str, ContainerStateTerminated]]:
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    for each in every:
        for state in (each.last_state, each.state):
            if state.terminated is not None:
                yield each.name, state.terminated


def reported_failures(status: PodStatus) -> dict[str, StartFailure]:
    """Return why containers could not be started, from a status."""
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    waiting = {each.name: each.state.waiting for each in every}
    return {
        name: StartFailure(state.reason, state.message)
        for name, state in waiting.items()
        if state is not None and state.reason not in {"", CONTAINER_CREATING, POD_INITIALIZING, RESTARTING_ALL}
    }


def is_ready(status: PodStatus) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)
