"""Durations as people read them, in kubectl's short form."""

from datetime import datetime, timedelta


def human_duration(duration: timedelta) -> str:
    """Format a duration in the largest units that matter: `90s`, `9m5s`, `47m`, `3h12m`, `5d4h`, `400d`."""
    seconds = int(duration.total_seconds())
    if seconds < 0:
        return "0s" if seconds >= -2 else "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    # Each row: below this bound, show the unit, and the rest in the smaller unit while the unit's number is small.
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    if years < 8:
        return _two(years, "y", days % 365, "d")
    return f"{years}y"


def exact_duration(duration: timedelta) -> str:
    """Return a measured time: `12ms`, `1.24s`, then as human_duration."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.2f}s"
    return f"{seconds:.0f}s" if seconds < 120 else human_duration(duration)


def age(since: datetime | None, *, now: datetime) -> str:
    return "<unknown>" if since is None else human_duration(now - since)


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"
