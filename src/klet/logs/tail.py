"""The end of a log in one bounded, blocking read: for the termination message of a container that has ended."""

from contextlib import closing
from pathlib import Path
from typing import Final

from klet.logs.file import LogFile, TailSearch
from klet.logs.render import LogOptions, LogRenderer

FARTHEST: Final = 4 * 1024 * 1024
"""Bytes from the end that are looked at. Runtimes split lines at 16 KiB; others may have made a file of any size."""


def read_end(path: Path, *, lines: int, limit: int) -> bytes:
    """Return the last lines without their time stamps, of these at most the last `limit` bytes."""
    renderer = LogRenderer(LogOptions(tail=lines))
    output = b""
    with closing(LogFile.open(path)) as file:
        search = TailSearch(blocks=file, lines=lines, farthest=FARTHEST)
        while (start := search.step()) is None:
            pass
        file.seek(start)
        left = FARTHEST
        while left > 0 and not renderer.is_done and (chunk := file.read()):
            output = (output + renderer.feed(chunk))[-limit:]
            left -= len(chunk)
    return (output + renderer.finish())[-limit:]
