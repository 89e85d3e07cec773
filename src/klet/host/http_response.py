"""Reads one HTTP/1.x response from the bytes as they come; errors in the words of Go's net/http, which users know."""

import json
import re

import msgspec

from klet.errors import KletError

MAX_BODY = 10 * 1024
"""Bytes of a body that anybody looks at; reading ends there."""
_MAX_HEAD = 1024 * 1024
_MAX_CHUNK_LINE = 256
# Of a length, which Go holds in 63 bits.
_MAX_DIGITS = 18
_VERSION = re.compile(rb"HTTP/[0-9]\.[0-9]")
_STATUS_LINE = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3})(?: [^\n]*)?\r?(?:\n|$)")
# These begin with the line feed before them: a literal is what a search finds fastest.
# A line that begins with a blank continues the one above.
_NO_COLON = re.compile(rb"\n(?![ \t])([^:\r\n]++)(?=\r?$)", re.MULTILINE)
_WANTED = re.compile(rb"\n(content-length|transfer-encoding|location):[ \t]*([^\r\n]*)", re.IGNORECASE)
_END_OF_HEAD = re.compile(rb"\n\r?\n")


class ResponseError(KletError):
    """Not a response; `in_body` if only the body is spoilt."""

    def __init__(self, message: str, *, in_body: bool = False) -> None:
        super().__init__(message)
        self.in_body = in_body


class HttpResponse(msgspec.Struct, frozen=True):
    """A response with as much of its body as fits."""

    status: int
    body: bytes = b""
    location: str = ""


class ResponseReader:
    """Takes bytes until the response is complete."""

    __slots__ = ("_body", "_buffer", "_head")

    def __init__(self) -> None:
        self._buffer = b""
        self._body = b""
        self._head: _Head | None = None

    @property
    def has_head(self) -> bool:
        return self._head is not None

    def feed(self, data: bytes) -> HttpResponse | None:
        """The response, once nothing more of it is wanted."""
        self._buffer += data
        while self._head is None:
            end = _END_OF_HEAD.search(self._buffer)
            if end is None:
                if len(self._buffer) > _MAX_HEAD:
                    raise _broken(f"net/http: server response headers exceeded {_MAX_HEAD} bytes; aborted")
                return None
            head = _parse_head(self._buffer[: end.start()].removesuffix(b"\r"))
            self._buffer = self._buffer[end.end() :]
            if head.status >= 200 or head.status == 101:
                self._head = head
        return self._read_body(self._head)

    def end(self) -> HttpResponse:
        """The server has closed the connection: the response, if that is an end it may have."""
        head = self._head
        if head is not None:
            if head.is_chunked or head.length is not None:
                raise ResponseError("unexpected EOF", in_body=True)
            return self._finish(head)
        if not self._buffer:
            raise ResponseError("EOF")
        first, newline, _ = self._buffer.partition(b"\n")
        _parse_status_line(first.rstrip(b"\r"))
        raise _broken("unexpected EOF") if newline else ResponseError("EOF")

    def _read_body(self, head: "_Head") -> HttpResponse | None:
        if head.is_chunked:
            is_complete = self._read_chunks()
        else:
            self._body += self._buffer
            self._buffer = b""
            is_complete = head.length is not None and len(self._body) >= head.length
        if is_complete or len(self._body) >= MAX_BODY:
            return self._finish(head)
        return None

    def _read_chunks(self) -> bool:
        """Move whole chunks into the body; say whether the last one was there."""
        while len(self._body) < MAX_BODY:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                if len(line) > _MAX_CHUNK_LINE:
                    raise ResponseError("invalid byte in chunk length", in_body=True)
                return False
            size = _parse_chunk_size(line)
            if size == 0:
                return True
            if len(rest) < size + 1 or (rest[size : size + 1] == b"\r" and len(rest) < size + 2):
                if len(self._body) + min(len(rest), size) < MAX_BODY:
                    return False
                self._body += rest[:size]
                return False
            self._body += rest[:size]
            self._buffer = rest[size + 2 :] if rest[size : size + 1] == b"\r" else rest[size + 1 :]
        return False

    def _finish(self, head: "_Head") -> HttpResponse:
        length = MAX_BODY if head.length is None else min(head.length, MAX_BODY)
        return HttpResponse(head.status, self._body[:length], head.location)


class _Head(msgspec.Struct, frozen=True):
    status: int
    length: int | None
    """None for a body that lasts until the end of the connection, or until its last chunk."""
    is_chunked: bool
    location: str


def _parse_head(head: bytes) -> _Head:
    first = _STATUS_LINE.match(head)
    status = int(first[1]) if first is not None else _parse_status_line(head.partition(b"\n")[0].rstrip(b"\r"))
    if odd := _NO_COLON.search(head):
        raise _broken(f"malformed MIME header: missing colon: {_quote(odd[1])}")
    lengths: set[bytes] = set()
    encoding = location = b""
    for name, value in _WANTED.findall(head):
        match name.lower():
            case b"content-length":
                lengths.add(value.rstrip())
            case b"transfer-encoding":
                encoding = value.rstrip().lower()
            case _:
                location = location or value.rstrip()
    if encoding and encoding != b"chunked":
        raise _broken(f"unsupported transfer encoding: {_quote(encoding)}")
    length = None if encoding else _parse_length(lengths)
    if status in {204, 304} or status < 200:
        length, encoding = 0, b""
    return _Head(status, length, bool(encoding), location.decode("utf-8", "replace"))


def _parse_status_line(line: bytes) -> int:
    version, blank, rest = line.partition(b" ")
    if not blank:
        raise _broken(f"malformed HTTP response {_quote(line)}")
    code = rest.lstrip(b" ").partition(b" ")[0]
    if len(code) != 3 or not code.isdigit():
        raise _broken(f"malformed HTTP status code {_quote(code)}")
    if not _VERSION.fullmatch(version):
        raise _broken(f"malformed HTTP version {_quote(version)}")
    return int(code)


def _parse_length(values: set[bytes]) -> int | None:
    if len(values) > 1:
        texts = " ".join(_quote(value) for value in sorted(values))
        raise _broken(f"http: message cannot contain multiple Content-Length headers; got [{texts}]")
    for value in values:
        if not value.isdigit() or len(value) > _MAX_DIGITS:
            raise _broken(f"bad Content-Length {_quote(value)}")
        return int(value)
    return None


def _parse_chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", digits):
        raise ResponseError("invalid byte in chunk length", in_body=True)
    return int(digits, 16)


def _broken(why: str) -> ResponseError:
    return ResponseError(f"net/http: HTTP/1.x transport connection broken: {why}")


def _quote(text: bytes) -> str:
    return json.dumps(text[:1024].decode("utf-8", "replace"), ensure_ascii=False)
