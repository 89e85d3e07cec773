"""The time that a pod may be active on its node (activeDeadlineSeconds)."""

from datetime import datetime, timedelta
from typing import Final

from klet.api.pod import Pod, PodStatus
from klet.api.times import add_length

_LONGEST: Final = 2**31 - 1
"""Seconds that API servers allow at most."""


def deadline_of(pod: Pod, status: PodStatus | None) -> datetime | None:
    """Return when the pod's time is up; None while it has no deadline or has not started.

    The instant it started is the one that was reported, or else the API server's.
    """
    started = (status.start_time if status is not None else None) or pod.status.start_time
    if pod.spec.active_deadline_seconds is None or started is None:
        return None
    return add_length(started, timedelta(seconds=min(pod.spec.active_deadline_seconds, _LONGEST)))


def is_past_deadline(pod: Pod, status: PodStatus | None, *, now: datetime) -> bool:
    deadline = deadline_of(pod, status)
    return deadline is not None and now >= deadline
