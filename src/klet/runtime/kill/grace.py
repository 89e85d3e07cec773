"""How long a container gets to stop: deletion, override, probe and pod grace periods (setTerminationGracePeriod)."""

from klet.api.container import Container
from klet.api.pod import Pod
from klet.model.pods import LONGEST_GRACE
from klet.runtime.actions import KillReason

MINIMUM_GRACE = 2
"""Seconds. The runtime never gets less: a container must have the chance to handle its signal."""


def base_grace(pod: Pod, container: Container | None, reason: KillReason) -> int:
    """Return the grace period before an override, in seconds."""
    return min(_granted(pod, container, reason), LONGEST_GRACE)


def _granted(pod: Pod, container: Container | None, reason: KillReason) -> int:
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    own = pod.spec.termination_grace_period_seconds
    if own is None:
        return MINIMUM_GRACE
    probe = None
    if container is not None and reason is KillReason.STARTUP_PROBE:
        probe = container.startup_probe
    if container is not None and reason is KillReason.LIVENESS_PROBE:
        probe = container.liveness_probe
    if probe is not None and probe.termination_grace_period_seconds is not None:
        return probe.termination_grace_period_seconds
    return own


def whole_seconds(elapsed: float) -> int:
    """Return the seconds that have passed, as grace periods count them: a second that has begun does not count.

    A timer may fire a hair before its time; the second it was set for has passed all the same.
    """
    return int(elapsed + 0.001)


def stop_timeout(grace: int, override: int | None, *, spent: int = 0) -> int:
    """Return the seconds for the CRI: the override if there is one, less what hooks used, never below the minimum."""
    return max((grace if override is None else override) - spent, MINIMUM_GRACE)
