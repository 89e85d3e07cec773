"""Log files of containers, which whatever runs in them may fill with anything.

The output must not depend on where the reads of the file begin and end, and is never longer than was asked for. Where
the last lines begin is compared with a count of the simplest kind.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from typing import Final, TypeAlias

from klet.logs.file import TailSearch
from klet.logs.line import LogError
from klet.logs.render import LogOptions, LogRenderer
from klet.model.log_query import LogStream
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, change_lines, choose_of, put_words
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Run, piece_size

Render: TypeAlias = Callable[[LogOptions, bytes, int], bytes]
"""What a client sees of a log that is read in blocks of that size."""

WORDS: Final = (
    b"2024-01-01T00:00:00.123456789Z stdout F hello",
    b"2024-01-01T00:00:00Z stderr P part",
    b"2024-01-01T00:00:00+02:00 stdout F ",
    b"0001-01-01T00:00:00Z stdout F a",
    b"9999-12-31T23:59:59.9-14:00 stdout F a",
    b"2024-02-30T25:61:61Z stdout F a",
    b"2024-01-01T00:00:00,5Z stdout P:x a",
    b"2024-01-01T00:00:00." + b"9" * 300 + b"Z stdout F a",
    b"stdout",
    b"stderr",
    b" F ",
    b" P ",
    b"P:",
    b"+99:99",
    b"-23:59",
    b'{"log":"a\\n","stream":"stdout","time":"2024-01-01T00:00:00.1Z"}',
    b'{"log":"\\ud800","stream":"stderr","time":"2024-01-01T00:00:00Z"}',
    b'{"log":1}',
    b'"time":"x"',
    b'"log":"\xff"',
    b"[" * 200,
    b"\xef\xbb\xbf",
)
SEEDS: Final = (
    b"2024-01-01T00:00:00.123456789Z stdout F one\n2024-01-01T00:00:01Z stderr P tw\n2024-01-01T00:00:01Z stderr F o\n",
    b'{"log":"one\\n","stream":"stdout","time":"2024-01-01T00:00:00.1Z"}\n{"log":"two","stream":"stderr","time":"2024-01-01T00:00:01Z"}\n',
    b"2024-01-01T00:00:00Z stdout F incomplete",
    b"\n\n\n",
)
_SINCE: Final = datetime(2024, 1, 1, tzinfo=UTC)
_OPTIONS: Final = tuple(
    LogOptions(tail=tail, since=since, limit=limit, timestamps=timestamps, stream=stream)
    for tail, since, limit, timestamps, stream in product(
        (None, 0, 2), (None, _SINCE), (None, 10), (False, True), (LogStream.ALL, LogStream.STDERR)
    )
)
_STAMP: Final = 64
_BLOCK: Final = 4096


def log_lines(render: Render | None = None) -> FuzzTarget:
    """Return the target; another renderer than klet's shows that its faults are found."""
    rendered = render or render_log

    @contextmanager
    def opened() -> Iterator[Run]:
        yield lambda data: check_log(rendered, data)

    return FuzzTarget(
        name="log-lines",
        summary="container logs: lines of the CRI format and of Docker's, and where the last ones begin",
        seeds=lambda: SEEDS,
        mutate=choose_of((change_bytes, change_lines, put_words(WORDS))),
        amplify=amplify_bytes(),
        opened=opened,
        limits=Limits(largest=512 << 10),
    )


def render_log(options: LogOptions, data: bytes, block: int) -> bytes:
    """Render as the reader of a whole file does it."""
    renderer, output = LogRenderer(options), bytearray()
    for start in range(0, len(data), block):
        output += renderer.feed(data[start : start + block])
        if renderer.is_done:
            return bytes(output)
    return bytes(output + renderer.finish())


def check_log(render: Render, data: bytes) -> object:
    """Read the log twice, in whole and in blocks; raises Flaw."""
    choice = zlib.crc32(data)
    options = _OPTIONS[choice % len(_OPTIONS)]
    _check_tail(data, lines=choice % 5, block=piece_size(data))
    whole = _outcome(render, options, data, max(1, len(data)))
    if _outcome(render, options, data, piece_size(data)) != whole:
        raise Flaw("shows another log when it is read in other blocks")
    if isinstance(whole, str):
        return whole
    if options.limit is not None and len(whole) > options.limit:
        raise Flaw("shows more than was asked for")
    if len(whole) > len(data) + _STAMP * (data.count(b"\n") + 1):
        raise Flaw("shows more than the log has")
    return bool(whole), options.timestamps


def _outcome(render: Render, options: LogOptions, data: bytes, block: int) -> bytes | str:
    try:
        return render(options, data, block)
    except LogError as error:
        return str(error)


def _check_tail(data: bytes, *, lines: int, block: int) -> None:
    search = TailSearch(blocks=_Blocks(data), lines=lines, block_size=block)
    for _ in range(len(data) // block + 2):
        if (start := search.step()) is not None:
            break
    else:
        raise Flaw("looks for the last lines without end")
    position = len(data)
    for _ in range(lines + 1):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            break
    if start != position + 1:
        raise Flaw("finds another beginning of the last lines")


class _Blocks:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read_at(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]
