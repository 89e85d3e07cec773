"""Findings of probes: upstream's events `Unhealthy` and `ProbeWarning`."""

from klet.api.pod import Pod
from klet.model.causes import Finding
from klet.model.pods import subject_of
from klet.model.probes import ProbeKind, ProbeResult
from klet.model.reasons import Reason
from klet.probes.decision import ProbeRules, ProbeState, Round
from klet.probes.handler import ProbeAnswer, ProbeOutcome

DECIDER = "probes"


def describe_outcome(
    pod: Pod, rules: ProbeRules, state: ProbeState, ended: Round, outcome: ProbeOutcome
) -> Finding | None:
    """Return the finding about one run that changed `state` to `ended`; None for a success."""
    if outcome.answer is ProbeAnswer.SUCCESS and not outcome.error:
        return None
    what = str(rules.kind).capitalize()
    if outcome.error:
        message = f"{what} probe errored and resulted in {outcome.answer} state: {outcome.error}"
        return _finding(pod, rules, Reason.UNHEALTHY, message)
    if outcome.answer is ProbeAnswer.WARNING:
        return _finding(pod, rules, Reason.PROBE_WARNING, f"{what} probe warning: {outcome.output}")
    if outcome.answer is not ProbeAnswer.FAILURE:
        return None
    failures = state.count + 1 if state.last is ProbeResult.FAILURE else 1
    message = f"{what} probe failed: {outcome.output}"
    following = _next(rules, failures, is_decided=bool(ended.writes))
    return _finding(pod, rules, Reason.UNHEALTHY, message, failures=failures, following=following)


def describe_bad_periods(pod: Pod, why: str) -> Finding:
    following = "the probes run at their periodSeconds"
    return Finding(
        subject=subject_of(pod),
        decider=DECIDER,
        decision=Reason.PROBE_PERIODS_IGNORED,
        message=why,
        next=following,
    )


def _next(rules: ProbeRules, failures: int, *, is_decided: bool) -> str:
    if rules.kind is ProbeKind.READINESS:
        return "the container is not ready until the probe succeeds" if is_decided else ""
    if is_decided:
        return "the container is killed, and its restart policy decides whether it starts again"
    return (
        f"the container is killed after {rules.failure_threshold} failures in a row, of which this is number {failures}"
    )


def _finding(
    pod: Pod, rules: ProbeRules, decision: Reason, message: str, *, failures: int = 0, following: str = ""
) -> Finding:
    measured: dict[str, str | int] = {"probe": str(rules.kind)}
    if failures:
        measured |= {"failuresInARow": failures, "failureThreshold": rules.failure_threshold}
    return Finding(
        subject=subject_of(pod, rules.container),
        decider=DECIDER,
        decision=decision,
        message=message,
        measurements=measured,
        next=following,
    )
