"""The end of a log in one bounded, blocking read: for the last words of a container that has ended."""

from contextlib import closing
from pathlib import Path

from klet.logs.file import LogFile, TailSearch
from klet.logs.render import LogOptions, LogRenderer


def read_end(path: Path, *, lines: int, limit: int) -> bytes:
    """The last lines without their time stamps, of these at most the last `limit` bytes."""
    renderer = LogRenderer(LogOptions(tail=lines))
    output = b""
    with closing(LogFile.open(path)) as file:
        search = TailSearch(blocks=file, lines=lines)
        while (start := search.step()) is None:
            pass
        file.seek(start)
        while not renderer.is_done and (chunk := file.read()):
            output = (output + renderer.feed(chunk))[-limit:]
    return (output + renderer.finish())[-limit:]
