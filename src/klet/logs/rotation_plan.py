"""Which files of a container's log are removed, compressed and renamed when it is rotated. Pure.

Beside the log `0.log` there are `0.log.<time>`, the newest rotated file, which stays readable for collectors until the
next rotation, and `0.log.<time>.gz`. Their names sort by age.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

COMPRESSED: Final = ".gz"
TEMPORARY: Final = ".tmp"
_STAMP: Final = "%Y%m%d-%H%M%S"
_STAMP_PATTERN: Final = re.compile(r"[0-8][0-9]{7}-[0-9]{6}")
"""Before the year 9000: times after those that others have made up must exist."""
_SECOND: Final = timedelta(seconds=1)


class RotationPlan(Struct, frozen=True, kw_only=True):
    """What is to be done, in this order. Names of files in the directory of the log."""

    remove: tuple[str, ...]
    """What a rotation that did not finish left, then the oldest."""
    compress: tuple[str, ...]
    rotated: str
    """The name that the log gets."""


def plan_rotation(log: str, found: Collection[str], *, max_files: int, now: datetime) -> RotationPlan:
    """Plan the rotation of a log with these rotated files, at this local time.

    The log that is renamed and the one that takes its place count as files, so `max_files - 2` others may stay.
    """
    used = sorted(name for name in found if is_used(name, found))
    excess = used[: max(0, len(used) - max(0, max_files - 2))]
    kept = used[len(excess) :]
    return RotationPlan(
        remove=(*sorted(set(found) - set(used)), *excess),
        compress=tuple(name for name in kept if not name.endswith(COMPRESSED)),
        rotated=name_rotated(log, found, now=now),
    )


def is_used(name: str, found: Collection[str]) -> bool:
    """Return whether a rotated file is one of the log: no temporary file, and not compressed into another already."""
    if name.endswith(TEMPORARY):
        return False
    return name.endswith(COMPRESSED) or name + COMPRESSED not in found


def name_rotated(log: str, found: Collection[str], *, now: datetime) -> str:
    """Return a name that no file has, and that sorts after all others.

    The clock may have been set back, as local time is in autumn: then the oldest file would be taken for the newest.
    """
    at = _find_newest(log, found, since=now)
    while True:
        name = f"{log}.{at.strftime(_STAMP)}"
        if name not in found and name + COMPRESSED not in found:
            return name
        at += _SECOND


def _find_newest(log: str, found: Collection[str], *, since: datetime) -> datetime:
    """Return the latest time of any name; `since` if there is none after that. Others may have made up names."""
    least = since.strftime(_STAMP)
    stamps = {name.removeprefix(f"{log}.").removesuffix(COMPRESSED) for name in found}
    for stamp in sorted((each for each in stamps if _STAMP_PATTERN.fullmatch(each) and each > least), reverse=True):
        with suppress(ValueError):
            return datetime.strptime(stamp, _STAMP)  # noqa: DTZ007 - as local as all names
    return since
