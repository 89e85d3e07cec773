"""When a worker looks at its pod again if nothing happens meanwhile (completeWork)."""

import random
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

ERROR_BACKOFF = timedelta(seconds=10)
NETWORK_BACKOFF = timedelta(seconds=1)
JITTER = 0.5


class StepFailure(StrEnum):
    """Why a step did not do all it should, as far as that decides when the next one comes."""

    NETWORK_NOT_READY = "network not ready"
    """There is no network for pods yet: it may come any moment."""
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
    """The instant of the next look.

    `retry_at` is the earliest end of a back-off, `look_at` something that is due by itself; `chance`, from 0 up to
    but not 1, spreads the pods so that they do not all look at the same instant.
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
