"""What a streaming request asks for. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

_LARGEST_PORT: Final = (1 << 16) - 1


class BadOptions(Struct, frozen=True):
    """What is wrong with the query: the body of a 400."""

    message: str


class StreamOptions(Struct, frozen=True, kw_only=True):
    """The streams of an exec or attach."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


def read_streams(query: Mapping[str, str]) -> StreamOptions | BadOptions:
    """Read the options. Only `1` is yes. A terminal has one output, so its errors are no stream of their own."""
    tty = query.get("tty", "") == "1"
    options = StreamOptions(
        stdin=query.get("input", "") == "1",
        stdout=query.get("output", "") == "1",
        stderr=query.get("error", "") == "1" and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        return BadOptions("you must specify at least 1 of stdin, stdout, stderr")
    return options


def read_ports(values: Sequence[str]) -> tuple[int, ...] | BadOptions:
    """Return the ports of a WebSocket; those of SPDY come with each of its streams."""
    if not values:
        return BadOptions('query parameter "port" is required')
    ports = []
    for value in values:
        if not value:
            return BadOptions('query parameter "port" cannot be empty')
        for text in value.split(","):
            why = _why_no_number(text)
            if why:
                return BadOptions(f'unable to parse "{value}" as a port: strconv.ParseUint: parsing "{text}": {why}')
            number = _as_number(text)
            if number < 1:
                return BadOptions(f'port "{value}" must be > 0')
            ports.append(number)
    return tuple(ports)


def _why_no_number(text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        return "invalid syntax"
    return "value out of range" if len(text.lstrip("0")) > 5 or _as_number(text) > _LARGEST_PORT else ""


def _as_number(text: str) -> int:
    """Parse a number without leading zeros: Python refuses to read thousands of digits, zeros included."""
    return int(text.lstrip("0") or "0")
