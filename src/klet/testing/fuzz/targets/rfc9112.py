"""A second reader of HTTP/1 requests, written from RFC 9112 alone: the opinion that klet's reader is compared with.

It takes the whole of what a client sent, and prefers to be simple over being fast. Strict wherever another server could
read something else; where the RFC leaves no doubt (one LF as the end of a line, equal lengths twice) it follows it.
"""

import re
from typing import Final

from msgspec import Struct

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")
_VERSION: Final = re.compile(rb"HTTP/([0-9]\.[0-9])")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_OWS: Final = b" \t"


class ParsedRequest(Struct, frozen=True):
    """What the RFC says that was sent."""

    method: bytes
    target: bytes
    version: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Return all of a field given in lower case, lists taken apart."""
        found = (value for each, value in self.fields if each.lower() == name)
        return [part.strip(_OWS) for value in found for part in value.split(b",")]


class Malformed(Exception):
    """No request, or one that two servers could read in two ways."""


class Incomplete(Exception):
    """More has to come."""


class Conversation(Struct, frozen=True):
    """The requests of one connection, and why the reading ended there."""

    requests: tuple[ParsedRequest, ...]
    refusal: str = ""


def read_conversation(data: bytes) -> Conversation:
    """Read requests until one is refused or incomplete."""
    requests: list[ParsedRequest] = []
    at = 0
    try:
        while True:
            request, at = _read_request(data, at)
            requests.append(request)
    except Incomplete:
        return Conversation(tuple(requests))
    except Malformed as error:
        return Conversation(tuple(requests), str(error))


def _read_request(data: bytes, at: int) -> tuple[ParsedRequest, int]:
    line, at = _read_line(data, at)
    while not line:
        line, at = _read_line(data, at)
    method, target, version = _read_request_line(line)
    fields, at = _read_fields(data, at)
    head = ParsedRequest(method, target, version, fields, b"")
    _check_host(head)
    body, at = _read_body(head, data, at)
    return ParsedRequest(method, target, version, fields, body), at


def _read_line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"\n", at)
    if end < 0:
        raise Incomplete
    line = data[at:end].removesuffix(b"\r")
    if b"\r" in line:
        raise Malformed("a CR without LF")
    return line, end + 1


def _read_request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise Malformed("a request line that is not three words")
    method, target, version = parts
    spoken = _VERSION.fullmatch(version)
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target) or spoken is None:
        raise Malformed("a request line of bad words")
    if spoken[1] not in {b"1.0", b"1.1"}:
        raise Malformed("another version")
    return method, target, spoken[1]


def _read_fields(data: bytes, at: int) -> tuple[tuple[tuple[bytes, bytes], ...], int]:
    fields: list[tuple[bytes, bytes]] = []
    while True:
        line, at = _read_line(data, at)
        if not line:
            return tuple(fields), at
        if line[:1] in {b" ", b"\t"}:
            raise Malformed("a field over two lines")
        name, colon, value = line.partition(b":")
        value = value.strip(_OWS)
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Malformed("a bad field")
        fields.append((name, value))


def _check_host(head: ParsedRequest) -> None:
    hosts = [value for name, value in head.fields if name.lower() == b"host"]
    if len(hosts) > 1 or (not hosts and head.version == b"1.1"):
        raise Malformed("not one Host")


def _read_body(head: ParsedRequest, data: bytes, at: int) -> tuple[bytes, int]:
    lengths, encodings = head.values(b"content-length"), head.values(b"transfer-encoding")
    if encodings:
        if lengths or head.version == b"1.0" or [each.lower() for each in encodings] != [b"chunked"]:
            raise Malformed("a body whose end is in doubt")
        return _read_chunks(data, at)
    if not lengths:
        return b"", at
    if len(set(lengths)) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 20:
        raise Malformed("a bad Content-Length")
    end = at + int(lengths[0])
    if end > len(data):
        raise Incomplete
    return data[at:end], end


def _read_chunks(data: bytes, at: int) -> tuple[bytes, int]:
    body = b""
    while True:
        if data.find(b"\n", at) < 0:
            raise Incomplete
        chunk = _CHUNK.match(data, at)
        if chunk is None:
            raise Malformed("a bad chunk")
        at, size = chunk.end(), int(chunk[1], 16)
        if size == 0:
            _, at = _read_fields(data, at)
            return body, at
        if at + size + 2 > len(data):
            raise Incomplete
        body += data[at : at + size]
        at += size + 2
        if data[at - 2 : at] != b"\r\n":
            raise Malformed("a chunk that is too long")
