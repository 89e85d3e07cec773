"""What a reader of a container log sees: from raw chunks of the file to the bytes of the answer.

Pure but for its own state: bytes go in, bytes come out. The rules are those of upstream's ReadLogs: `since` drops lines
after the tail was chosen, the limit counts output bytes, a timestamp stands only where a logical line begins.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from klet.logs.line import LineParser, LogError, LogLine, detect_parser
from klet.model.log_query import LogStream


class LogOptions(Struct, frozen=True, kw_only=True):
    """What part of a log is wanted (PodLogOptions, resolved)."""

    follow: bool = False
    tail: int | None = None
    """Only the last lines of the file, counted in raw lines; None for all."""
    since: datetime | None = None
    """Drop lines strictly before this instant."""
    limit: int | None = None
    """The most bytes to give out."""
    timestamps: bool = False
    stream: LogStream = LogStream.ALL


def resolve_since(*, seconds: int | None, time: datetime | None, now: datetime) -> datetime | None:
    """Combine `sinceSeconds` and `sinceTime`: the later one wins."""
    candidates = [] if time is None else [time]
    if seconds is not None and seconds < (now - _EPOCH).total_seconds():
        # No log is older than the epoch, and an instant before the year 1 cannot be computed.
        candidates.append(now - timedelta(seconds=seconds))
    return max(candidates, default=None)


class LogRenderer:
    """Turns chunks of a log file into output. Once `is_done`, no further chunk changes anything."""

    def __init__(self, options: LogOptions) -> None:
        self._only = None if options.stream is LogStream.ALL else options.stream
        self._timestamps = options.timestamps
        self._since = _nanoseconds(options.since)
        self._remaining = options.limit
        # A file that grows between finding the tail and reading it must not give more lines than were asked for.
        self._lines_left = None if options.follow else options.tail
        self._parser: LineParser | None = None
        self._carry = bytearray()
        self._at_line_start = True
        self._skipped = 0

    @property
    def is_done(self) -> bool:
        return self._remaining == 0 or self._lines_left == 0

    @property
    def skipped(self) -> int:
        """How many lines were not log lines and were left out."""
        return self._skipped

    @property
    def pending(self) -> int:
        """The size of the unterminated line that waits for its rest."""
        return len(self._carry)

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the file and return what they add to the output."""
        if self.is_done:
            return b""
        newline = chunk.rfind(b"\n")
        if newline < 0:
            self._carry += chunk
            if len(self._carry) > MAX_LINE:
                raise LogError(f"log line is longer than {MAX_LINE} bytes")
            return b""
        complete = bytes(self._carry) + chunk[:newline]
        self._carry = bytearray(chunk[newline + 1 :])
        return self._render(complete.split(b"\n"), b"\n")

    def finish(self) -> bytes:
        """Give out the incomplete last line too."""
        if self.is_done or not self._carry:
            return b""
        line = self.drop_incomplete()
        return self._render([line], b"")

    def drop_incomplete(self) -> bytes:
        """Forget the unterminated line: its file was replaced."""
        line = bytes(self._carry)
        self._carry.clear()
        return line

    def _render(self, lines: list[bytes], end: bytes) -> bytes:
        output: list[bytes] = []
        size = 0
        if self._parser is None:
            self._parser = detect_parser(lines[0], end)
        parser = self._parser
        for raw in lines:
            line = parser(raw, end)
            if line is None:
                self._skipped += 1
                continue
            shown = self._show(line)
            if shown:
                output.append(shown)
                size += len(shown)
                if self._remaining is not None and size >= self._remaining:
                    cut = b"".join(output)[: self._remaining]
                    self._remaining = 0
                    return cut
            if self._lines_left is not None:
                self._lines_left -= 1
                if self._lines_left == 0:
                    break
        if self._remaining is not None:
            self._remaining -= size
        return b"".join(output)

    def _show(self, line: LogLine) -> bytes:
        if self._only is not None and line.stream is not self._only:
            return b""
        begins = self._at_line_start
        self._at_line_start = line.content.endswith(b"\n")
        if self._since is not None and line.nanoseconds < self._since:
            return b""
        if self._timestamps and begins:
            return b"%b %b" % (line.stamp, line.content)
        return line.content


MAX_LINE: Final = 16 * 1024 * 1024
"""Runtimes split lines at 16 KiB; a longer run of bytes without a newline is no log, and must not fill the memory."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _nanoseconds(instant: datetime | None) -> int | None:
    if instant is None:
        return None
    return (instant - _EPOCH) // timedelta(microseconds=1) * 1000
