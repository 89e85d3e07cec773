"""When a worker looks at its pod again if nothing happens meanwhile (completeWork)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

ERROR_BACKOFF = timedelta(seconds=10)
NETWORK_BACKOFF = timedelta(seconds=1)
JITTER = 0.5
NETWORK_NOT_READY = "network is not ready"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often workers look at their pods by themselves."""

    resync: timedelta
    randomness: random.Random


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
    spread = 1 + JITTER * chance
    if not errors:
        at = now + resync * spread
    elif any(NETWORK_NOT_READY in error for error in errors):
        at = now + NETWORK_BACKOFF * spread
    elif retry_at is None:
        at = now + ERROR_BACKOFF * spread
    elif retry_at - now > resync:
        at = now + resync * spread
    else:
        # Not spread, as upstream's is: the end of a back-off was announced, and differs from pod to pod anyway.
        at = max(now, retry_at)
    return at if look_at is None else max(now, min(at, look_at))
