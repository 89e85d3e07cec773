"""How far the pull of an image has come, and its words. Pure."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_WHOLE: Final = 100


class PullStage(StrEnum):
    """What the runtime does for a pull right now."""

    UNKNOWN = "unknown"
    """The runtime does not say, or has not read the image's manifest yet."""
    FETCHING = "fetching"
    UNPACKING = "unpacking"
    """Everything is fetched."""


class PullProgress(Struct, frozen=True, kw_only=True):
    """One pull that is under way. What the runtime does not say is None."""

    image: str
    namespace: str
    pod: str
    """The pod that it is for."""
    since: datetime
    elapsed: timedelta
    stage: PullStage = PullStage.UNKNOWN
    fetched: int | None = None
    """Bytes that are on the node, those that were there before too."""
    total: int | None = None
    rate: float | None = None
    """Bytes a second."""
    left: timedelta | None = None

    @property
    def percent(self) -> int | None:
        """Return the share that is there, rounded down: 100 means all of it."""
        if self.total is None or self.fetched is None:
            return None
        return _WHOLE * self.fetched // self.total if self.total else _WHOLE


def describe_pull(pull: PullProgress) -> str:
    """Return how far a pull is: `12.0 MiB of 50.0 MiB (24 %), 4.1 MiB/s, 9s left`."""
    if pull.stage is PullStage.UNKNOWN or pull.fetched is None or pull.total is None:
        return f"for {describe_seconds(pull.elapsed)}"
    if pull.stage is PullStage.UNPACKING:
        return f"all {describe_bytes(pull.total)} fetched, being unpacked"
    words = [f"{describe_bytes(pull.fetched)} of {describe_bytes(pull.total)} ({pull.percent} %)"]
    if pull.rate is not None:
        words.append(f"{describe_bytes(round(pull.rate))}/s" if pull.rate >= 1 else "nothing arrives")
    if pull.left is not None:
        words.append(f"{describe_seconds(pull.left)} left")
    return ", ".join(words)


def describe_bytes(count: int) -> str:
    """Return a size in the largest unit that it fills: `512 B`, `12.3 MiB`."""
    value = float(count)
    for unit in _UNITS[:-1]:
        # What would be rounded up to the next unit is shown in that.
        if round(value, 1) < _STEP:
            return f"{value:.0f} {unit}" if unit == _UNITS[0] else f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} {_UNITS[-1]}"


def describe_seconds(duration: timedelta) -> str:
    """Return whole seconds, minutes or hours: `9s`, `2m5s`, `1h4m`."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
