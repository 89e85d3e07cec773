"""When a worker looks at its pod again if nothing happens meanwhile (completeWork)."""

from collections.abc import Sequence
from datetime import datetime, timedelta

ERROR_BACKOFF = timedelta(seconds=10)
NETWORK_BACKOFF = timedelta(seconds=1)
JITTER = 0.5
NETWORK_NOT_READY = "network is not ready"


def compute_requeue(
    errors: Sequence[str],
    *,
    retry_at: datetime | None = None,
    look_at: datetime | None = None,
    now: datetime,
    resync: timedelta,
    chance: float,
) -> datetime:
    """The instant of the next look.

    `retry_at` is the earliest end of a back-off, `look_at` something that is due by itself; `chance`, from 0 up to
    but not 1, spreads the pods so that they do not all look at the same instant.
    """
    at = now + _delay(errors, retry_at, now, resync) * (1 + JITTER * chance)
    return at if look_at is None else max(now, min(at, look_at))


def _delay(errors: Sequence[str], retry_at: datetime | None, now: datetime, resync: timedelta) -> timedelta:
    if not errors:
        return resync
    if any(NETWORK_NOT_READY in error for error in errors):
        return NETWORK_BACKOFF
    if retry_at is None:
        return ERROR_BACKOFF
    return min(max(retry_at - now, timedelta(0)), resync)
