"""Finds why a pod is in its state, from its status and its records: the first screen of `klet explain`. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.klet_v1 import PodState
from klet.api.pod import Pod
from klet.journal.container_reasons import PodContainer, explain_container
from klet.journal.evidence import Evidence, ReasonKind, StateReason
from klet.journal.pod_reasons import (
    explain_end,
    explain_failing_sync,
    explain_host_ports,
    explain_manifest,
    explain_place,
    explain_silence,
    explain_stop,
)
from klet.journal.pull_reasons import add_progress
from klet.journal.timeline import ENDINGS, Timeline
from klet.model.causes import Cause
from klet.model.pull_progress import PullProgress
from klet.model.reasons import Reason

FAILURES: Final = (
    Reason.DEADLINE_EXCEEDED,
    Reason.BACK_OFF_RESTARTING_CONTAINER,
    Reason.BACK_OFF_PULLING_IMAGE,
    Reason.FAILED,
    Reason.FAILED_CREATE_POD_SANDBOX,
    Reason.FAILED_MOUNT,
    Reason.FAILED_MAP_VOLUME,
    Reason.FAILED_ATTACH_VOLUME,
    Reason.NETWORK_NOT_READY,
    Reason.UNHEALTHY,
    Reason.EXITED,
)
"""Records that show what was wrong with a pod that is gone."""


class NodeTroubles(Struct, frozen=True, kw_only=True):
    """What is wrong with the node itself."""

    errors: Sequence[str] = ()
    since: datetime | None = None
    """When all was well for the last time."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The state of a pod, and why."""

    state: PodState
    summary: str
    """One sentence when nothing is wrong; otherwise empty."""
    reasons: tuple[StateReason, ...]
    """The one that explains most comes first."""


def diagnose(
    pod: Pod | None,
    story: Timeline,
    *,
    node: NodeTroubles = NodeTroubles(),  # noqa: B008 - immutable
    earlier: Pod | None = None,
    pulls: Sequence[PullProgress] = (),
    now: datetime,
) -> Diagnosis:
    """Return what is wrong with a pod and what it waits for.

    `earlier` has the same name and has not stopped yet; `pulls` are those that are under way for the pod.
    """
    histories = {each.uid: Evidence(each.causes) for each in story.histories}
    newest = Evidence(story.histories[-1].causes) if story.histories else Evidence(())
    if pod is None:
        return _remembered(newest)
    records = histories.get(pod.metadata.uid, Evidence(()))
    state = _state_of(pod)
    found = _find_reasons(pod, records, state, node, reboots=story.reboots, now=now)
    reasons = [add_progress(reason, pulls) for reason in found]
    manifest = explain_manifest(newest)
    if manifest is not None:
        reasons.append(manifest)
    if earlier is not None:
        reasons = [*_predecessor(earlier, histories.get(earlier.metadata.uid, Evidence(())), now=now), *reasons]
    ordered = sorted(reasons, key=lambda reason: list(ReasonKind).index(reason.kind))
    is_well = all(reason.kind is ReasonKind.PAST for reason in ordered)
    return Diagnosis(state=state, summary=_summary(pod, state) if is_well else "", reasons=tuple(ordered))


def _find_reasons(
    pod: Pod,
    records: Evidence,
    state: PodState,
    node: NodeTroubles,
    *,
    reboots: tuple[Cause, ...],
    now: datetime,
) -> Iterator[StateReason]:
    if pod.status.phase in {"Succeeded", "Failed"}:
        end = explain_end(pod, records)
        if end is not None:
            yield end
            return
        for reason in _container_reasons(pod, records, reboots, now=now):
            yield replace(reason, next=reason.next or "nothing: a pod that is over does not run again")
        return
    for error in node.errors:
        yield StateReason(
            word=str(Reason.RUNTIME_NOT_READY),
            message=f"the runtime of this node is not well, and nothing new is begun: {error}",
            since=node.since,
            next="ask the runtime again every second",
        )
    silent = list(explain_silence(records))
    yield from silent
    if state.terminating:
        yield from _stop_reasons(pod, records, silent, now=now)
        return
    place = None if state.ready else explain_place(records, now=now)
    containers = list(_container_reasons(pod, records, reboots, now=now))
    if place is not None:
        yield place
    # Without a sandbox, the old states of the containers explain nothing.
    yield from containers if place is None else ()
    if not silent and not containers and place is None and not state.ready:
        yield from _remaining(pod, records, now=now)
    yield from explain_host_ports(records)


def _stop_reasons(
    pod: Pod, records: Evidence, silent: Sequence[StateReason], *, now: datetime
) -> Iterator[StateReason]:
    hung = {reason.container for reason in silent}
    found = [reason for reason in explain_stop(pod, records, now=now) if reason.container not in hung]
    if not found and not silent and (failing := explain_failing_sync(records, now=now)) is not None:
        found = [failing]
    if found or silent:
        yield from found
    else:
        yield from _under_way(records)


def _container_reasons(
    pod: Pod, records: Evidence, reboots: tuple[Cause, ...], *, now: datetime
) -> Iterator[StateReason]:
    init = {status.name: status for status in pod.status.init_container_statuses}
    for spec in pod.spec.init_containers:
        if (status := init.get(spec.name)) is not None:
            pod_container = PodContainer(
                spec=spec, status=status, records=records.about(spec.name), is_init=True, reboots=reboots
            )
            if (reason := explain_container(pod_container, now=now)) is not None:
                yield reason
    own = {status.name: status for status in pod.status.container_statuses}
    for spec in pod.spec.containers:
        if (status := own.get(spec.name)) is not None:
            pod_container = PodContainer(spec=spec, status=status, records=records.about(spec.name), reboots=reboots)
            if (reason := explain_container(pod_container, now=now)) is not None:
                yield reason


def _remaining(pod: Pod, records: Evidence, *, now: datetime) -> Iterator[StateReason]:
    """Return reasons for a pod that is not ready and has no other reason."""
    if (failing := explain_failing_sync(records, now=now)) is not None:
        yield failing
        return
    for gate in pod.spec.readiness_gates:
        conditions = {condition.type: condition.status for condition in pod.status.conditions}
        if conditions.get(gate.condition_type) != "True":
            text = f'the readiness gate "{gate.condition_type}" of the pod is not True'
            yield StateReason(
                word="ReadinessGatesNotReady", message=text, next="the controller that sets that condition"
            )
            return
    yield from _under_way(records)


def _under_way(records: Evidence) -> Iterator[StateReason]:
    """Return the newest decision, if there is no better reason."""
    newest = records.newest
    if newest is not None:
        found = newest.finding
        yield StateReason(
            kind=ReasonKind.PROGRESS,
            word=str(found.decision),
            container=found.subject.container,
            message=found.message or "it is under way",
            since=newest.at,
            next=found.next,
            next_at=found.next_at,
        )


def _predecessor(earlier: Pod, records: Evidence, *, now: datetime) -> Iterator[StateReason]:
    """Return why a pod has to wait for another one that has its name."""
    whole = [*explain_silence(records), *explain_stop(earlier, records, now=now)]
    prefix = "an earlier pod of this name has not stopped yet, and this one waits for it"
    if not whole:
        yield StateReason(word="Terminating", message=prefix, measurements={"uid": earlier.metadata.uid})
    for reason in whole:
        yield replace(reason, kind=ReasonKind.TROUBLE, message=f"{prefix}: {reason.message}")


def _remembered(records: Evidence) -> Diagnosis:
    """Return the diagnosis of a pod that only the journal knows."""
    manifest = explain_manifest(records)
    own = records.about("")
    phase = own.newest_of(Reason.PHASE_CHANGED)
    state = PodState(phase=str(phase.finding.measurements.get("phase", "")) if phase is not None else "", known=False)
    end = own.newest_of(Reason.POD_REMOVED, Reason.TERMINATE, *ENDINGS)
    asked = own.newest_of(Reason.POD_REMOVED) or own.newest_of(Reason.TERMINATE) or end
    reasons = [] if manifest is None else [manifest]
    if asked is not None:
        reasons.append(_past(asked))
    before = records.before(own.newest_of(Reason.TERMINATE) or asked)
    failures = before.of(*FAILURES).where(lambda cause: cause.finding.measurements.get("exitCode") != 0)
    if (trouble := failures.newest) is not None and not before.after(trouble).of(Reason.READY).causes:
        reasons.append(_past(trouble))
    if asked is None and manifest is None:
        text = "no source has the pod, and the agent does not run it"
        reasons.append(StateReason(kind=ReasonKind.PAST, word="Gone", message=text))
    return Diagnosis(state=state, summary="", reasons=tuple(reasons))


def _past(cause: Cause) -> StateReason:
    finding = cause.finding
    return StateReason(
        kind=ReasonKind.PAST,
        word=str(finding.decision),
        container=finding.subject.container,
        message=finding.message,
        measurements=dict(finding.measurements),
        since=cause.at,
    )


def _state_of(pod: Pod) -> PodState:
    sidecars = {spec.name for spec in pod.spec.init_containers if spec.restart_policy == "Always"}
    status = pod.status
    lasting = [*status.container_statuses, *(each for each in status.init_container_statuses if each.name in sidecars)]
    return PodState(
        phase=status.phase,
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions),
        containers_ready=sum(each.ready for each in lasting),
        containers=len(pod.spec.containers) + len(sidecars),
        restarts=sum(each.restart_count for each in (*status.init_container_statuses, *status.container_statuses)),
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def _summary(pod: Pod, state: PodState) -> str:
    if state.phase == "Succeeded":
        return "nothing is wrong: every container has ended with success"
    if state.ready:
        ready = next(condition for condition in pod.status.conditions if condition.type == "Ready")
        since = ready.last_transition_time
        return "nothing is wrong: every container is ready" + (f" since {since:%H:%M:%S} UTC" if since else "")
    return "nothing is known to be wrong"
