"""Lines of container log files: the CRI format, and Docker's JSON as the fallback that upstream keeps.

A CRI line is `<RFC3339 instant> <stdout|stderr> <tag[:tag…]> <content>`; the tag `P` marks a part that the next line
continues. Instants keep their nanoseconds, which `datetime` would lose.
"""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from klet.errors import KletError
from klet.model.log_query import LogStream


class LogError(KletError):
    """A log file that cannot be read; the text is what the client of the log sees."""


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One parsed line. Its instant stays in the parts that were read: most readers never look at it."""

    second: bytes
    fraction: bytes | None
    zone: bytes
    epoch: int
    stream: LogStream
    content: bytes
    """Ends in a newline unless more of the same line follows."""

    @property
    def nanoseconds(self) -> int:
        """The instant, counted from 1970."""
        return self.epoch * _SECOND + int(_nine_digits(self.fraction))

    @property
    def stamp(self) -> bytes:
        """The instant as it is shown: nine digits of fraction, in the zone it was written in."""
        zone = b"Z" if self.zone in (b"+00:00", b"-00:00") else self.zone
        return b"%b.%b%b" % (self.second, _nine_digits(self.fraction), zone)


class LineParser(Protocol):
    """Reads one line without its newline; `end` is what ended it, empty for an incomplete last line."""

    def __call__(self, line: bytes, end: bytes = b"\n") -> LogLine | None: ...


def parse_cri_line(line: bytes, end: bytes = b"\n") -> LogLine | None:
    """Read a line of the CRI format, or None if it is not one."""
    match = _CRI_PREFIX.match(line)
    if match is None:
        return None
    second, fraction, zone, stream, tags = match.groups()
    epoch = _epoch(second, zone)
    if epoch is None:
        return None
    content = line[match.end() :]
    if tags != b"P" and not tags.startswith(b"P:"):
        content += end
    return LogLine(second, fraction, zone, epoch, _CRI_STREAMS[stream], content)


def parse_docker_line(line: bytes, end: bytes = b"\n") -> LogLine | None:  # noqa: ARG001 - the JSON says where a line ends
    """Read a line of Docker's json-file driver, or None if it is not one."""
    try:
        entry = _DOCKER_DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    match = _INSTANT.fullmatch(entry.time.encode())
    stream = _DOCKER_STREAMS.get(entry.stream)
    if match is None or stream is None:
        return None
    second, fraction, zone = match.groups()
    epoch = _epoch(second, zone)
    if epoch is None:
        return None
    return LogLine(second, fraction, zone, epoch, stream, entry.log.encode())


def detect_parser(line: bytes, end: bytes = b"\n") -> LineParser:
    """Choose the format for a whole read by its first line. The line is not quoted: it may be of another file."""
    for parser in (parse_cri_line, parse_docker_line):
        if parser(line, end) is not None:
            return parser
    raise LogError("failed to get parse function: unsupported log format")


class _DockerLine(msgspec.Struct, frozen=True):
    log: str
    stream: str
    time: str


_SECOND: Final = 1_000_000_000
_INSTANT_PATTERN: Final = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)"
_INSTANT: Final = re.compile(_INSTANT_PATTERN)
_CRI_PREFIX: Final = re.compile(_INSTANT_PATTERN + rb" (stdout|stderr) ([^ ]*) ")
_CRI_STREAMS: Final = {b"stdout": LogStream.STDOUT, b"stderr": LogStream.STDERR}
_DOCKER_DECODER: Final = msgspec.json.Decoder(_DockerLine)
_DOCKER_STREAMS: Final = {"stdout": LogStream.STDOUT, "stderr": LogStream.STDERR}


def _nine_digits(fraction: bytes | None) -> bytes:
    if fraction is None:
        return b"000000000"
    return fraction if len(fraction) == 9 else fraction[:9].ljust(9, b"0")


# A log has many lines in one second, and reading a date is most of the cost of a line.
@lru_cache(maxsize=16)
def _epoch(second: bytes, zone: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat((second + zone).decode()).timestamp())
    except ValueError:
        return None
