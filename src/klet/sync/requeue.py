"""When a worker syncs its pod again if nothing happens meanwhile (completeWork)."""

import random
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

ERROR_BACKOFF = timedelta(seconds=10)
NETWORK_BACKOFF = timedelta(seconds=1)
JITTER = 0.5


class StepFailure(StrEnum):
    """Why a step failed, as far as that decides when it is retried."""

    NETWORK_NOT_READY = "network not ready"
    """The runtime's network is not ready yet: it may be ready any moment."""
    ERROR = "error"


class ResyncSettings(Struct, frozen=True):
    """How often workers sync their pods when nothing happens."""

    period: timedelta
    randomness: random.Random


def compute_requeue(
    failure: StepFailure | None,
    *,
    retry_at: datetime | None = None,
    look_at: datetime | None = None,
    now: datetime,
    resync: timedelta,
    chance: float,
) -> datetime:
    """Return the instant of the next sync.

    `retry_at` is the earliest end of a back-off, `look_at` when a sync is due anyway; `chance`, from 0 up to but not
    1, spreads the pods so that they do not all sync at the same instant.
    """
    spread = 1 + JITTER * chance
    if failure is None:
        at = now + resync * spread
    elif failure is StepFailure.NETWORK_NOT_READY:
        at = now + NETWORK_BACKOFF * spread
    elif retry_at is None:
        at = now + ERROR_BACKOFF * spread
    elif retry_at - now > resync:
        at = now + resync * spread
    else:
        # Not spread, as upstream's is: the end of a back-off was announced, and differs from pod to pod anyway.
        at = max(now, retry_at)
    return at if look_at is None else max(now, min(at, look_at))
