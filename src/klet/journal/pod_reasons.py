"""Finds what is wrong with a pod as a whole: its end, its stop, its sandbox, unanswered runtime calls. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from klet.api.pod import Pod
from klet.journal.evidence import Evidence, ReasonKind, StateReason, plain_error
from klet.journal.timeline import ENDINGS
from klet.model.causes import Cause, Measurement
from klet.model.reasons import Reason, read_reason

BEFORE_CONTAINERS: Final = (
    Reason.FAILED_PREPARE_DYNAMIC_RESOURCES,
    Reason.FAILED_CREATE_POD_SANDBOX,
    Reason.FAILED_POD_SANDBOX_STATUS,
    Reason.NETWORK_NOT_READY,
    Reason.FAILED,
    Reason.FAILED_MOUNT,
    Reason.FAILED_MAP_VOLUME,
    Reason.FAILED_ATTACH_VOLUME,
)
"""Decisions that keep a pod from having a sandbox."""
PROGRESS: Final = (Reason.SANDBOX_CREATED, Reason.STARTED, Reason.READY)
HOOK: Final = (Reason.PRE_STOP_HOOK, Reason.PRE_STOP_HOOK_UNFINISHED)
"""A preStop hook holds a stop up."""
STALE: Final = timedelta(minutes=1)
"""A failing sync is retried, and recorded again, well before."""
NETWORK_STALE: Final = timedelta(seconds=10)


def explain_end(pod: Pod, records: Evidence) -> StateReason | None:
    """Return why a pod has failed, if that was not one of its containers."""
    status = pod.status
    if status.phase != "Failed" or not status.reason:
        return None
    reason = read_reason(status.reason)
    record = records.about("").newest_of(reason) or records.about("").newest_of(Reason.PHASE_CHANGED)
    deadline = pod.spec.active_deadline_seconds
    if reason == Reason.DEADLINE_EXCEEDED and deadline is not None:
        started = f" (it started at {status.start_time:%H:%M:%S} UTC)" if status.start_time is not None else ""
        text = f"the pod was active for longer than its activeDeadlineSeconds of {deadline}{started}, and was stopped"
        measured: dict[str, Measurement] = {"activeDeadlineSeconds": deadline}
    else:
        text, measured = status.message or "the pod has failed", {}
        if record is not None and record.finding.decision == reason:
            measured = dict(record.finding.measurements)
            # First what people can act upon; then upstream's words, which may be long.
            text = f"{why} ({text})" if (why := measured.pop("why", "")) else text
    return StateReason(
        word=status.reason,
        message=text,
        measurements=measured,
        since=record.at if record is not None else None,
        next="nothing: a pod that has failed does not run again",
    )


def explain_silence(records: Evidence) -> Iterator[StateReason]:
    """Return the calls about this pod that the runtime has not answered yet."""
    # An agent that was restarted waits for none of the calls of its previous run.
    current = records.after(records.newest_of(Reason.POD_ADDED, *ENDINGS))
    open_calls: dict[str, Cause] = {}
    for cause in current.of(Reason.RUNTIME_NOT_ANSWERING, Reason.RUNTIME_ANSWERED).causes:
        container = cause.finding.subject.container
        if cause.finding.decision == Reason.RUNTIME_NOT_ANSWERING:
            open_calls[container] = cause
        else:
            open_calls.pop(container, None)
    for container, cause in open_calls.items():
        finding = cause.finding
        yield StateReason(
            word=str(Reason.RUNTIME_NOT_ANSWERING),
            container=container,
            message=finding.message,
            measurements=dict(finding.measurements),
            since=finding.since,
            next=f"{finding.next}; the call is given up" if finding.next_at is not None else finding.next,
            next_at=finding.next_at,
        )


def explain_stop(pod: Pod, records: Evidence, *, now: datetime) -> Iterator[StateReason]:
    """Return what a pod that is to stop waits for: a hook, or a container within its grace."""
    asked = records.about("").newest_of(Reason.TERMINATE)
    cause = f" ({asked.finding.message})" if asked is not None and asked.finding.message else ""
    why = f"the pod is to stop{cause}, and "
    current = records.after(asked)
    names = dict.fromkeys(cause.finding.subject.container for cause in current.of(Reason.KILLING).causes)
    for name in names:
        steps = current.about(name)
        newest = steps.newest_of(Reason.KILLING, *HOOK, Reason.FAILED_PRE_STOP_HOOK)
        if newest is None:
            continue
        yield _stopping(pod, name, steps, newest, why, now=now)
    failed = current.about("").newest_of(Reason.FAILED_KILL_POD, Reason.EXCEEDED_GRACE_PERIOD)
    if failed is not None:
        yield _as_recorded(failed, next_step="stop it again")


def _stopping(pod: Pod, name: str, steps: Evidence, newest: Cause, why: str, *, now: datetime) -> StateReason:
    grace = newest.finding.measurements.get("graceSeconds")
    seconds = grace if isinstance(grace, int | float) else 0
    over_at = newest.at + timedelta(seconds=seconds)
    match newest.finding.decision:
        case Reason.PRE_STOP_HOOK:
            text = f"{why}the preStop hook{_hook_kind(pod, name)} of container {name} has not ended"
            text = f"{text} ({seconds:g} s of grace)"
            following = "the container gets its stop signal when the hook ends, or when its grace is over"
        case Reason.PRE_STOP_HOOK_UNFINISHED:
            text = f"{why}the preStop hook{_hook_kind(pod, name)} of container {name} did not end"
            text = f"{text} within its grace of {seconds:g} s"
            following, over_at = "the container gets its stop signal, and is killed", newest.at + timedelta(seconds=2)
        case _:
            text = f"{why}container {name} has not ended ({seconds:g} s of grace)"
            following = "the container is killed if it has not ended"
    is_hooked = newest.finding.decision in HOOK
    first = steps.newest_of(Reason.PRE_STOP_HOOK) or newest
    return StateReason(
        kind=ReasonKind.TROUBLE if is_hooked else ReasonKind.PROGRESS,
        word=str(newest.finding.decision) if is_hooked else "Terminating",
        container=name,
        message=text,
        measurements=dict(newest.finding.measurements),
        since=first.at,
        next=following,
        next_at=over_at if over_at > now else None,
    )


def _hook_kind(pod: Pod, name: str) -> str:
    """Return how the hook is carried out, in brackets."""
    spec = next((spec for spec in (*pod.spec.containers, *pod.spec.init_containers) if spec.name == name), None)
    hook = spec.lifecycle.pre_stop if spec is not None and spec.lifecycle is not None else None
    if hook is None:
        return ""
    kinds = {"exec": hook.exec, "httpGet": hook.http_get, "tcpSocket": hook.tcp_socket, "sleep": hook.sleep}
    return next((f" ({kind})" for kind, action in kinds.items() if action is not None), "")


def explain_place(records: Evidence, *, now: datetime) -> StateReason | None:
    """Return why there is no sandbox that containers could be started in, or what is done about it now."""
    own = records.about("")
    current = records.after(records.newest_of(*PROGRESS)).about("")
    # That volumes are missing is recorded now and then; the error of one of them explains more.
    failure = current.newest_of(*BEFORE_CONTAINERS) or current.newest_of(Reason.VOLUMES_NOT_MOUNTED)
    is_network = failure is not None and failure.finding.decision == Reason.NETWORK_NOT_READY
    if failure is not None and is_network and now - failure.at > NETWORK_STALE:
        return None  # it is recorded every second as long as it lasts
    attempt = own.after(failure).newest_of(Reason.CREATE_SANDBOX)
    if failure is None:
        has_place = bool(records.of(*PROGRESS).after(attempt).causes)
        return None if attempt is None or has_place else _creating(attempt)
    message = failure.finding.message
    failures = current.of(failure.finding.decision)
    if failure.finding.measurements.get("step") == "network":
        text = f"the pod's network cannot be set up: {plain_error(message)}"
    elif failure.finding.decision == Reason.FAILED_CREATE_POD_SANDBOX:
        text = f"the pod's sandbox cannot be created: {plain_error(message)}"
    elif (volume := failure.finding.measurements.get("volume")) is not None:
        text = f'volume "{volume}" cannot be set up: {plain_error(message)}'
    else:
        text = plain_error(message)
    next_at = failure.finding.next_at
    following = f"another try is under way since {attempt.at:%H:%M:%S} UTC" if attempt is not None else "try again"
    if (blocked := own.after(failure).newest_of(Reason.FAILED_KILL_POD)) is not None:
        following = f"stop the sandbox of the last try, which fails too: {plain_error(blocked.finding.message)}"
    return StateReason(
        word=str(failure.finding.decision),
        message=text,
        measurements=dict(failure.finding.measurements) | {"failures": len(failures.causes)},
        since=failures.first.at if failures.first is not None else failure.at,
        next=following,
        next_at=next_at if attempt is None and next_at is not None and next_at > now else None,
    )


def explain_failing_sync(records: Evidence, *, now: datetime) -> StateReason | None:
    """Return the error of a sync that fails repeatedly, if there is no other reason."""
    failure = records.about("").newest_of(Reason.FAILED_SYNC, Reason.FAILED_CREATE_POD_CONTAINER)
    if failure is None or records.after(failure).of(*PROGRESS).causes or now - failure.at > STALE:
        return None
    return _as_recorded(failure, next_step="try again after a back-off")


def explain_host_ports(records: Evidence) -> Iterator[StateReason]:
    """Return host ports that another process held when the pod's sandbox was made."""
    for held in records.after(records.newest_of(Reason.CREATE_SANDBOX)).of(Reason.HOST_PORT_HELD).causes:
        yield _as_recorded(held, next_step="nothing by itself: end that process, or give one of them another port")


def explain_manifest(records: Evidence) -> StateReason | None:
    """Return the error of a manifest of this name that was refused and has not been corrected."""
    complaint = records.newest_of(Reason.MANIFEST_REJECTED, Reason.MANIFEST_SETTLED, Reason.FAILED_VALIDATION)
    if complaint is None or complaint.finding.decision == Reason.MANIFEST_SETTLED:
        return None
    return _as_recorded(complaint, next_step="read the manifest again when it is corrected")


def _creating(attempt: Cause) -> StateReason:
    return StateReason(
        kind=ReasonKind.PROGRESS,
        word=str(Reason.CREATE_SANDBOX),
        message="the pod's sandbox, with its network, is being created",
        measurements=dict(attempt.finding.measurements),
        since=attempt.at,
        next="start its containers",
    )


def _as_recorded(cause: Cause, *, next_step: str) -> StateReason:
    finding = cause.finding
    return StateReason(
        word=str(finding.decision),
        container=finding.subject.container,
        message=plain_error(finding.message),
        measurements=dict(finding.measurements),
        since=finding.since or cause.at,
        next=next_step,
        next_at=finding.next_at,
    )
