"""Where requests begin and end on a connection: heads are read, bodies only measured. Pure.

What is not understood beyond doubt has no framing here: the HTTP server proper judges it.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote

HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^\s]+) HTTP/(1\.[01])")
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[01] ([0-9]{3})(?: .*)?")
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_LONGEST_CHUNK_LINE: Final = 4096
_LINE_END: Final = b"\r\n"

Headers: TypeAlias = tuple[tuple[str, str], ...]


class FramingError(ValueError):
    """The end of a message cannot be told."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The first line of a request and its headers, in their order and spelling."""

    method: str
    target: str
    version: str
    headers: Headers

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def is_upgrade(self) -> bool:
        """Whether the client wants to go on in another protocol."""
        return self.version == "1.1" and any("upgrade" in value.lower() for value in self.all("connection"))

    def all(self, name: str) -> tuple[str, ...]:
        """The values of a header, given in lower case."""
        return tuple(value for each, value in self.headers if each.lower() == name)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of an answer."""

    status: int
    headers: Headers


def parse_request_head(data: bytes) -> RequestHead | None:
    """Read a head, its empty line included or not; None if it is not plain HTTP/1."""
    lines = _lines(data)
    first = _REQUEST_LINE.fullmatch(lines[0])
    headers = _fields(lines[1:])
    return RequestHead(first[1], first[2], first[3], headers) if first is not None and headers is not None else None


def parse_response_head(data: bytes) -> ResponseHead | None:
    lines = _lines(data)
    first = _STATUS_LINE.fullmatch(lines[0])
    headers = _fields(lines[1:])
    return ResponseHead(int(first[1]), headers) if first is not None and headers is not None else None


def write_head(first_line: str, headers: Headers) -> bytes:
    """The bytes of a head, the empty line included."""
    lines = (first_line, *(f"{name}: {value}" for name, value in headers))
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _lines(data: bytes) -> list[str]:
    return [line.removesuffix("\r") for line in data.decode("latin-1").rstrip("\r\n").split("\n")]


def _fields(lines: list[str]) -> Headers | None:
    found = [_FIELD.fullmatch(line) for line in lines]
    headers = tuple((match[1], match[2]) for match in found if match is not None)
    return headers if len(headers) == len(found) else None


@dataclass(slots=True)
class Length:
    """A body of so many bytes."""

    left: int

    def take(self, data: bytearray) -> int:
        """How many of the bytes belong to the body."""
        taken = min(self.left, len(data))
        self.left -= taken
        return taken

    @property
    def is_complete(self) -> bool:
        return self.left == 0


@dataclass(slots=True)
class Chunked:
    """A body in chunks, each with its length before it."""

    left: int = 0
    """Of the chunk, with the line end behind it."""
    is_last: bool = False
    is_complete: bool = False
    content: bytearray | None = None
    """The chunks put together, where somebody wants them."""

    def take(self, data: bytearray) -> int:
        """How many of the bytes belong to the body. Raises FramingError."""
        taken = 0
        while not self.is_complete and taken < len(data):
            if self.left:
                taken += self._take_chunk(memoryview(data)[taken:])
                continue
            end = data.find(b"\n", taken)
            if end < 0:
                if len(data) - taken > _LONGEST_CHUNK_LINE:
                    raise FramingError("a chunk without a length")
                break
            self._read_line(bytes(data[taken:end]).removesuffix(b"\r"))
            taken = end + 1
        return taken

    def _take_chunk(self, data: memoryview) -> int:
        step = min(self.left, len(data))
        if self.content is not None:
            self.content += data[: min(step, max(0, self.left - len(_LINE_END)))]
        self.left -= step
        data.release()
        return step

    def _read_line(self, line: bytes) -> None:
        if self.is_last:
            self.is_complete = not line  # what comes before the empty line are trailers
            return
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise FramingError("a chunk whose length is no number")
        length = int(size[1], 16)
        self.is_last = length == 0
        self.left = length + len(_LINE_END) if length else 0


Body: TypeAlias = Length | Chunked


def body_of(head: RequestHead | ResponseHead) -> Body | None:
    """The body that a head announces; None if it announces none. Raises FramingError where it contradicts itself."""
    named = [(name.lower(), value) for name, value in head.headers]
    encodings = [value.lower() for name, value in named if name == "transfer-encoding"]
    lengths = {value for name, value in named if name == "content-length"}
    if encodings:
        if encodings != ["chunked"] or lengths:
            raise FramingError("a body with two ends")
        return Chunked()
    if not lengths:
        return None
    [length, *others] = lengths
    if others or not _DIGITS.fullmatch(length):
        raise FramingError("a body with no length that can be told")
    return Length(int(length))


class BodyReader:
    """Puts a body together. Without any announcement it goes on until the connection ends."""

    def __init__(self, head: ResponseHead) -> None:
        """Raises FramingError."""
        self.content = bytearray()
        self._body = body_of(head)
        self._rest = bytearray()
        if isinstance(self._body, Chunked):
            self._body.content = self.content

    def feed(self, data: bytes) -> None:
        """Raises FramingError."""
        if self._body is None:
            self.content += data
            return
        self._rest += data
        taken = self._body.take(self._rest)
        if isinstance(self._body, Length):
            self.content += self._rest[:taken]
        del self._rest[:taken]

    @property
    def is_complete(self) -> bool:
        return self._body is not None and self._body.is_complete
