"""What the agent said while a spec ran: the lines of klog's text form between two moments."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

LINES: Final = 40
SLACK: Final = timedelta(seconds=1)
_HEAD: Final = re.compile(r"^[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")


def select_lines(
    log: Iterable[str], *, started: datetime, ended: datetime, namespace: str = "", limit: int = LINES
) -> Sequence[str]:
    """Return the last lines of a window; if any of them names the namespace of the spec, only those that do.

    Other specs run at the same time, so a window alone shows mostly others. Lines without a date belong to the one
    before.
    """
    window: list[str] = []
    is_inside = False
    for line in log:
        at = read_time(line, near=started)
        if at is not None:
            is_inside = started - SLACK <= at <= ended + SLACK
        if is_inside:
            window.append(line.rstrip("\n"))
    own = [line for line in window if namespace and namespace in line]
    return (own or window)[-limit:]


def read_time(line: str, *, near: datetime) -> datetime | None:
    """Return when a line was written; klog leaves the year out and uses the machine's time zone."""
    found = _HEAD.match(line)
    if found is None:
        return None
    month, day, hour, minute, second, microsecond = map(int, found.groups())
    try:
        local = datetime(near.year, month, day, hour, minute, second, microsecond)  # noqa: DTZ001  # local, as klog's
    except ValueError:
        return None
    return local.astimezone(UTC)
