"""Finds what is wrong with one container, from its status and the records about it. Pure."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from klet.api.container import Container
from klet.api.container_status import ContainerStateTerminated, ContainerStatus
from klet.api.handlers import Probe
from klet.journal.evidence import Evidence, ReasonKind, StateReason, plain_error
from klet.model.causes import Cause, Measurement
from klet.model.reasons import Reason
from klet.model.runtime import START_ERROR

IMAGE_WORDS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
QUIET_WORDS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting that has no reason of its own."""
LONGEST_WORDS: Final = 160
_MISSING_SECRETS: Final = "missing pull secrets"
IMAGE: Final = "image"
"""The measurement that names an image as the pod does."""
DEFAULT_PERIOD: Final = 10
"""Seconds between two probes, unless the probe says otherwise."""


class PodContainer(Struct, frozen=True, kw_only=True):
    """A container, as its pod has it."""

    spec: Container
    status: ContainerStatus
    records: Evidence
    is_init: bool = False
    reboots: tuple[Cause, ...] = ()
    """Of the node."""

    @property
    def who(self) -> str:
        return f"init container {self.spec.name}" if self.is_init else f"container {self.spec.name}"

    @property
    def run(self) -> Evidence:
        """The records since it last started."""
        return self.records.after(self.records.newest_of(Reason.STARTED))

    @property
    def ended_run(self) -> Evidence:
        """The records of the run that ended last."""
        if self.status.state.running is None:
            return self.run
        current = self.records.newest_of(Reason.STARTED)
        earlier = self.records.before(current)
        return earlier.after(earlier.newest_of(Reason.STARTED))


def explain_container(container: PodContainer, *, now: datetime) -> StateReason | None:
    """Return what is wrong with a container, or what it is doing; None if it is well."""
    state = container.status.state
    if state.waiting is not None:
        return _waiting(container, state.waiting.reason, state.waiting.message)
    if state.terminated is not None:
        return None if state.terminated.exit_code == 0 else _ended(container, state.terminated, state.terminated.reason)
    if state.running is not None:
        return _failing_probe(container, now=now) or _not_ready(container, now=now) or _past_end(container)
    return None


def _waiting(container: PodContainer, word: str, message: str) -> StateReason | None:
    if word in QUIET_WORDS:
        return _under_way(container)
    if word in IMAGE_WORDS:
        return _no_image(container, word, message)
    last = container.status.last_state.terminated
    if last is not None and word == "CrashLoopBackOff":
        return _ended(container, last, word)
    following = container.run.newest
    return StateReason(
        word=word,
        container=container.spec.name,
        message=f"{container.who} cannot be started: {plain_error(message) or word}",
        measurements={"restarts": container.status.restart_count},
        since=_since(container.run.of(Reason.FAILED, Reason.FAILED_POST_START_HOOK)),
        next="start it again",
        next_at=following.finding.next_at if following is not None else None,
    )


def _under_way(container: PodContainer) -> StateReason | None:
    """Return what a container that is about to start is doing, by its newest record."""
    newest = container.records.newest
    if newest is None:
        return None
    match newest.finding.decision:
        case Reason.PULL_WAITS:
            # The record has the whole sentence, and behind what.
            text = f"{container.who} waits for its image: {newest.finding.message}"
            following = "pull the image when its turn has come"
        case Reason.PULLING | Reason.PULL_BEGINS:
            text = f'the image "{container.spec.image}" of {container.who} is being pulled'
            following = "start the container with it"
        case Reason.POST_START_HOOK:
            text = f"the postStart hook of {container.who} is running"
            following = "the container counts as started after it"
        case _:
            return None
    return StateReason(
        kind=ReasonKind.PROGRESS,
        word=str(newest.finding.decision),
        container=container.spec.name,
        message=text,
        measurements={IMAGE: container.spec.image},
        since=newest.at,
        next=following,
    )


def _no_image(container: PodContainer, word: str, message: str) -> StateReason:
    image = container.spec.image
    tries = container.records.after(container.records.newest_of(Reason.STARTED, Reason.PULLED))
    newest = tries.of(Reason.BACK_OFF_PULLING_IMAGE, Reason.FAILED).newest
    next_at = newest.finding.next_at if newest is not None else None
    if word == "ErrImageNeverPull":
        text = f'the image "{image}" of {container.who} is not on this node, and its imagePullPolicy is Never'
    elif word == "InvalidImageName":
        text = f'the image "{image}" of {container.who} has a name that is not valid: {plain_error(message)}'
    else:
        text = (
            f'the image "{image}" of {container.who} cannot be pulled: {plain_error(message)}{_without_secrets(tries)}'
        )
    return StateReason(
        word=word,
        container=container.spec.name,
        message=text,
        measurements={"image": image},
        since=_since(tries.of(Reason.FAILED, Reason.INSPECT_FAILED, Reason.ERR_IMAGE_NEVER_PULL)),
        next="pull it again" if next_at is not None else "look again whether it is there",
        next_at=next_at,
    )


def _without_secrets(tries: Evidence) -> str:
    """Return a note on pull secrets that the newest pull lacked."""
    pull = tries.where(lambda cause: _MISSING_SECRETS in cause.finding.measurements).newest
    missing = pull.finding.measurements[_MISSING_SECRETS] if pull is not None else ""
    return f"; image pull secrets that it was tried without: {missing}" if missing else ""


def _ended(
    container: PodContainer, ended: ContainerStateTerminated, word: str, *, kind: ReasonKind = ReasonKind.TROUBLE
) -> StateReason:
    """Return how a container ended; what follows is in the newest record about it."""
    following = container.run.newest
    next_at = following.finding.next_at if following is not None and kind is ReasonKind.TROUBLE else None
    word, message, measured = _how(container, ended, word)
    return StateReason(
        kind=kind,
        word=word,
        container=container.spec.name,
        message=message,
        measurements=measured | {"exitCode": ended.exit_code, "restarts": container.status.restart_count},
        since=ended.finished_at,
        next="start it again" if next_at is not None else "",
        next_at=next_at,
    )


def _how(
    container: PodContainer, ended: ContainerStateTerminated, word: str
) -> tuple[str, str, dict[str, Measurement]]:
    """Return the word, the sentence and the measurements for an end."""
    count = container.status.restart_count
    times = f", {count} restart{'s' if count > 1 else ''} so far" if count else ""
    if ended.reason == START_ERROR:
        command = " ".join((*container.spec.command, *container.spec.args))
        text = f"{container.who} cannot be started: {plain_error(ended.message)}{times}"
        return "RunContainerError", text, {"command": command} if command else {}
    failure = _fatal_probe(container.ended_run)
    if failure is not None:
        return (
            str(Reason.UNHEALTHY),
            f"{container.who} was killed: {_answer(failure)}{times}",
            dict(failure.finding.measurements),
        )
    if ended.reason == "OOMKilled":
        given = container.status.resources
        limit = given.limits.get("memory") if given is not None else None
        limited = f" (its memory limit is {limit})" if limit is not None else ""
        return "OOMKilled", f"{container.who} was killed because it ran out of memory{limited}{times}", {}
    if (reboot := _fatal_reboot(container)) is not None:
        restarted = "restarted" if container.status.state.running is not None else "ended"
        measured = reboot.finding.measurements
        away = f", which was away for {measured['awaySeconds']:g} s" if "awaySeconds" in measured else ""
        text = f"{container.who} {restarted} because the node rebooted{away}{times}"
        return str(Reason.NODE_REBOOTED), text, {"bootId": measured.get("bootId", "")}
    how = f"by signal {ended.signal}" if ended.signal else f"with exit code {ended.exit_code}"
    said = plain_error(" ".join(ended.message.split()))[:LONGEST_WORDS]
    last_words = f'; it said: "{said}"' if said else ""
    return word or "Error", f"{container.who} ended {how}{times}{last_words}", {}


def _fatal_probe(run: Evidence) -> Cause | None:
    """Return the last answer of the probe for which a run was ended, if it was."""
    kill = run.of(Reason.KILLING).where(lambda cause: "probe" in cause.finding.measurements).newest
    return _unhealthy(run.before(kill), "liveness", "startup") if kill is not None else None


def _fatal_reboot(container: PodContainer) -> Cause | None:
    """Return the reboot of the node that ended a container, if one did."""
    end = container.ended_run.newest_of(Reason.EXITED)
    by_id = {reboot.id: reboot for reboot in container.reboots}
    return by_id.get(end.parent) if end is not None and end.parent is not None else None


def _failing_probe(container: PodContainer, *, now: datetime) -> StateReason | None:
    """Return the failure of the liveness or startup probe of a running container."""
    failure = _unhealthy(container.run, "liveness", "startup")
    if failure is None:
        return None
    probe = container.spec.startup_probe if _probe_of(failure) == "startup" else container.spec.liveness_probe
    kill = container.run.after(failure).newest_of(Reason.KILLING)
    if kill is None and not _is_fresh(failure, probe, now=now):
        return None
    finding = failure.finding
    ending = f"{container.who} is being killed" if kill is not None else f"{container.who} is about to be killed"
    return StateReason(
        word=str(Reason.UNHEALTHY),
        container=container.spec.name,
        message=f"{ending}: {_answer(failure)}",
        measurements=dict(finding.measurements) | {"restarts": container.status.restart_count},
        since=_since(container.run.where(lambda cause: _probe_of(cause) == _probe_of(failure))),
        next="it ends, or its grace is over, and its restart policy decides" if kill is not None else finding.next,
        next_at=_grace_end(kill) if kill is not None else _next_probe(failure, probe, now=now),
    )


def _not_ready(container: PodContainer, *, now: datetime) -> StateReason | None:
    if container.status.ready or (container.is_init and container.spec.restart_policy != "Always"):
        return None
    is_starting = container.spec.startup_probe is not None and not container.status.started
    kind, probe = (
        ("startup", container.spec.startup_probe) if is_starting else ("readiness", container.spec.readiness_probe)
    )
    if probe is None:
        return None
    running = container.status.state.running
    started_at = running.started_at if running is not None else None
    failure = _unhealthy(container.run, kind)
    if failure is None:
        first = timedelta(seconds=probe.initial_delay_seconds)
        return StateReason(
            kind=ReasonKind.PROGRESS,
            word="NotReady",
            container=container.spec.name,
            message=f"{container.who} runs, and its {kind} probe has not succeeded yet",
            since=started_at,
            next="its first probe" if first else "the next probe",
            next_at=started_at + first if started_at is not None and started_at + first > now else None,
        )
    next_at = _next_probe(failure, probe, now=now)
    period = probe.period_seconds or DEFAULT_PERIOD
    return StateReason(
        word=str(Reason.UNHEALTHY),
        container=container.spec.name,
        message=f"{container.who} is not ready: {_answer(failure)}",
        measurements=dict(failure.finding.measurements) | {"periodSeconds": period},
        since=_since(container.run.where(lambda cause: _probe_of(cause) == kind)),
        next=f"it is ready when the probe succeeds; asked every {period} s{', again' if next_at else ''}",
        next_at=next_at,
    )


def _past_end(container: PodContainer) -> StateReason | None:
    """Return the last end of a container that runs well now."""
    last = container.status.last_state.terminated
    if last is None or not container.status.restart_count:
        return None
    return _ended(container, last, last.reason, kind=ReasonKind.PAST)


def _unhealthy(records: Evidence, *kinds: str) -> Cause | None:
    return records.where(lambda cause: _probe_of(cause) in kinds).newest


def _probe_of(cause: Cause) -> str:
    """Return the kind of probe whose failure a record is about; empty for other records."""
    return str(cause.finding.measurements.get("probe", "")) if cause.finding.decision == Reason.UNHEALTHY else ""


def _answer(failure: Cause) -> str:
    """Return the answer of the probe, with how often it came."""
    measured = failure.finding.measurements
    count, threshold = measured.get("failuresInARow"), measured.get("failureThreshold")
    often = f" ({count} in a row, {threshold} are too many)" if count and threshold else ""
    return f"{' '.join(failure.finding.message.split())}{often}"


def _is_fresh(failure: Cause, probe: Probe | None, *, now: datetime) -> bool:
    """Return whether the probe still fails: a success is not recorded, but the next failure would be."""
    if probe is None:
        return False
    patience = 2 * (probe.period_seconds or DEFAULT_PERIOD) + (probe.timeout_seconds or 1)
    return now - failure.at <= timedelta(seconds=patience)


def _next_probe(failure: Cause, probe: Probe | None, *, now: datetime) -> datetime | None:
    at = failure.at + timedelta(seconds=(probe.period_seconds or DEFAULT_PERIOD) if probe is not None else 0)
    return at if at > now else None


def _grace_end(kill: Cause) -> datetime | None:
    grace = kill.finding.measurements.get("graceSeconds")
    return kill.at + timedelta(seconds=grace) if isinstance(grace, int | float) else None


def _since(records: Evidence) -> datetime | None:
    return records.first.at if records.first is not None else None
