"""How long a test may take: by the directory it is in, or by its own mark."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Final

from klet.errors import KletError

DEFAULT_LIMIT: Final = 300.0


class LimitError(KletError):
    """A limit that cannot be read."""


def parse_limits(lines: Iterable[str]) -> dict[PurePath, float]:
    """Read lines such as `tests/unit: 60`."""
    limits = {}
    for line in lines:
        directory, colon, seconds = line.partition(":")
        if not colon:
            raise LimitError(f"deadlines: {line!r} is not of the form <directory>: <seconds>")
        limits[PurePath(directory.strip())] = parse_seconds(seconds)
    return limits


def parse_seconds(text: object) -> float:
    try:
        seconds = float(str(text))
    except ValueError as error:
        raise LimitError(f"a deadline is a number of seconds, not {text!r}") from error
    if not 0 <= seconds < float("inf"):
        raise LimitError(f"a deadline is 0, for none, or more seconds, not {text!r}")
    return seconds


def choose_limit(path: PurePath, limits: Mapping[PurePath, float]) -> float:
    """Return the limit of the nearest directory that has one; the path is relative to where the limits are written."""
    for directory in (path, *path.parents):
        if directory in limits:
            return limits[directory]
    return DEFAULT_LIMIT
