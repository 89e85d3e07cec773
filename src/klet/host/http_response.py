"""Reads one HTTP/1.x response from the bytes as they come; errors in the words of Go's net/http, which users know."""

import json
import re

import msgspec

from klet.errors import KletError

MAX_BODY = 10 * 1024
"""Bytes of a body that are read at most."""
MAX_HEAD = 64 * 1024
"""Bytes that may come before a body; Go's client reads more, which no health check needs."""
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
    """Takes bytes until the response is complete. What has come is not read again with every piece that follows."""

    __slots__ = ("_body", "_buffer", "_chunk_left", "_head", "_heads", "_is_after_chunk", "_scanned")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        """So much of the buffer does not hold the end of the head."""
        self._heads = 0
        """Bytes of the heads so far, those of interim responses included."""
        self._head: _Head | None = None
        self._body = bytearray()
        self._chunk_left = 0
        self._is_after_chunk = False

    @property
    def has_head(self) -> bool:
        return self._head is not None

    def feed(self, data: bytes) -> HttpResponse | None:
        """Return the response, once nothing more of it is wanted."""
        self._buffer += data
        head = self._head or self._read_head()
        return None if head is None else self._read_body(head)

    def end(self) -> HttpResponse:
        """Handle the end of the connection; return the response, if it may end there."""
        head = self._head
        if head is not None:
            if head.is_chunked or head.length is not None:
                raise ResponseError("unexpected EOF", in_body=True)
            return self._finish(head)
        if not self._buffer:
            raise ResponseError("EOF")
        first, newline, _ = bytes(self._buffer).partition(b"\n")
        _parse_status_line(first.rstrip(b"\r"))
        raise _broken("unexpected EOF") if newline else ResponseError("EOF")

    def _read_head(self) -> "_Head | None":
        """Take heads off the buffer up to the first that is not interim."""
        while (end := _END_OF_HEAD.search(self._buffer, self._scanned)) is not None:
            self._heads += end.end()
            _limit_head(self._heads)
            head = _parse_head(bytes(self._buffer[: end.start()]).removesuffix(b"\r"))
            del self._buffer[: end.end()]
            self._scanned = 0
            if head.status >= 200 or head.status == 101:
                self._head = head
                return head
        # The last two bytes may be where the end begins.
        self._scanned = max(0, len(self._buffer) - 2)
        _limit_head(self._heads + len(self._buffer))
        return None

    def _read_body(self, head: "_Head") -> HttpResponse | None:
        if head.is_chunked:
            is_complete = self._read_chunks()
        else:
            self._body += self._buffer
            self._buffer.clear()
            is_complete = head.length is not None and len(self._body) >= head.length
        if is_complete or len(self._body) >= MAX_BODY:
            return self._finish(head)
        return None

    def _read_chunks(self) -> bool:
        """Move the data of chunks into the body; return whether the last one was there."""
        buffer, position = self._buffer, 0
        while position < len(buffer) and len(self._body) < MAX_BODY:
            if self._chunk_left:
                data = buffer[position : position + self._chunk_left]
                self._body += data
                position += len(data)
                self._chunk_left -= len(data)
                self._is_after_chunk = not self._chunk_left
            elif self._is_after_chunk:
                line_end = 2 if buffer[position : position + 1] == b"\r" else 1
                if len(buffer) - position < line_end:
                    break
                position += line_end
                self._is_after_chunk = False
            else:
                newline = buffer.find(b"\n", position, position + _MAX_CHUNK_LINE + 1)
                if newline < 0 and len(buffer) - position > _MAX_CHUNK_LINE:
                    raise ResponseError("invalid byte in chunk length", in_body=True)
                if newline < 0:
                    break
                self._chunk_left = _parse_chunk_size(bytes(buffer[position:newline]))
                position = newline + 1
                if not self._chunk_left:
                    return True
        del buffer[:position]
        return False

    def _finish(self, head: "_Head") -> HttpResponse:
        length = MAX_BODY if head.length is None else min(head.length, MAX_BODY)
        return HttpResponse(head.status, bytes(self._body[:length]), head.location)


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


def _limit_head(length: int) -> None:
    if length > MAX_HEAD:
        raise _broken(f"net/http: server response headers exceeded {MAX_HEAD} bytes; aborted")


def _broken(why: str) -> ResponseError:
    return ResponseError(f"net/http: HTTP/1.x transport connection broken: {why}")


def _quote(text: bytes) -> str:
    return json.dumps(text[:1024].decode("utf-8", "replace"), ensure_ascii=False)
