"""Makes an input that shows a flaw as small as it gets with the flaw still there. Pure but for the runs."""

from collections.abc import Callable
from typing import Final

MOST_RUNS: Final = 1500


def minimise(data: bytes, shows: Callable[[bytes], bool], *, most: int = MOST_RUNS) -> bytes:
    """Take out ever smaller pieces, then make what is left plain, as long as `shows` says that the flaw is there."""
    tries = _Tries(shows, most)
    size = max(1, len(data) // 2)
    while size and not tries.are_over:
        smaller = _without_pieces(data, size, tries)
        if smaller == data:
            size //= 2
        data = smaller
    return _plainer(data, tries)


class _Tries:
    """Counts the runs."""

    def __init__(self, shows: Callable[[bytes], bool], most: int) -> None:
        self._shows = shows
        self._left = most

    @property
    def are_over(self) -> bool:
        return self._left <= 0

    def works(self, data: bytes) -> bool:
        self._left -= 1
        return self._left >= 0 and self._shows(data)


def _without_pieces(data: bytes, size: int, tries: _Tries) -> bytes:
    at = 0
    while at < len(data) and not tries.are_over:
        shorter = data[:at] + data[at + size :]
        if tries.works(shorter):
            data = shorter
        else:
            at += size
    return data


def _plainer(data: bytes, tries: _Tries) -> bytes:
    """Return a letter instead of each byte that need not be what it is."""
    for at in range(min(len(data), 256)):
        plain = data[:at] + b"a" + data[at + 1 :]
        if data[at] != ord("a") and tries.works(plain):
            data = plain
    return data
