"""What a file server answers: conditions, ranges, content types, listings of directories. Pure.

Upstream: Go's `http.FileServer`, by whose rules clients of `/logs/` go.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from html import escape
from typing import Final
from urllib.parse import quote

from msgspec import Struct

MOST_RANGES: Final = 64
"""Ranges in one request. With more of them the whole file is sent, as HTTP allows."""
LISTING_START: Final = '<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n'
LISTING_END: Final = "</pre>\n"
SNIFFED: Final = 512
"""Bytes of a file that its content type is guessed from."""
_NO_OVERLAP: Final = "invalid range: failed to overlap"
_LONGEST_DATE: Final = 64
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63 - 1
_UNESCAPED: Final = "/-_.~$&+,:;=@"
_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".gif": "image/gif",
    ".htm": "text/html; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webp": "image/webp",
    ".xml": "text/xml; charset=utf-8",
}
_TEXT: Final = "text/plain; charset=utf-8"
_MARKS: Final = (
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"\xef\xbb\xbf", _TEXT),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


class ByteRange(Struct, frozen=True):
    """A part of a file."""

    start: int
    length: int

    def content_range(self, size: int) -> str:
        return f"bytes {self.start}-{self.start + self.length - 1}/{size}"


class FileAnswer(Struct, frozen=True):
    """How a request for a file is answered; with status 206 by its ranges, with 200 by the whole of it."""

    status: int
    ranges: tuple[ByteRange, ...] = ()
    error: str = ""
    is_outside: bool = False
    """No range overlaps the file."""


def plan_file_answer(headers: Mapping[str, str], *, size: int, modified: datetime | None) -> FileAnswer:
    """Decide by the conditions of a request (RFC 9110, in its order) and by its ranges. Files have no entity tags."""
    if not _is_unmodified(headers, modified):
        return FileAnswer(412)
    if_none_match = headers.get("If-None-Match", "")
    if "*" in if_none_match if if_none_match else is_cached(headers, modified):
        return FileAnswer(304)
    wanted = headers.get("Range", "")
    if not wanted or ((condition := headers.get("If-Range", "")) and _date(condition) != modified):
        return FileAnswer(200)
    ranges = parse_ranges(wanted, size)
    if ranges is None:
        return FileAnswer(416, error="invalid range")
    if not ranges:
        return FileAnswer(200) if size == 0 else FileAnswer(416, error=_NO_OVERLAP, is_outside=True)
    # Together longer than the file: an attack, or a client that does not know what it does.
    if len(ranges) > MOST_RANGES or sum(each.length for each in ranges) > size:
        return FileAnswer(200)
    return FileAnswer(206, ranges)


def is_cached(headers: Mapping[str, str], modified: datetime | None) -> bool:
    """Return whether the client has what was modified then (`If-Modified-Since`)."""
    since = _date(headers.get("If-Modified-Since", ""))
    return modified is not None and since is not None and modified <= since


def parse_ranges(text: str, size: int) -> tuple[ByteRange, ...] | None:
    """Read a `Range`, as far as it overlaps a file of that size; None if it is none."""
    unit, is_bytes, specs = text.partition("bytes=")
    if unit or not is_bytes:
        return None
    ranges = []
    for spec in filter(None, (each.strip(" \t") for each in specs.split(","))):
        first, dash, last = (part.strip(" \t") for part in spec.partition("-"))
        start, end = _number(first), _number(last)
        if not dash or (first and start is None) or (last and end is None) or not (first or last):
            return None
        if start is None:
            length = min(end or 0, size)
            ranges.append(ByteRange(size - length, length))
        elif end is not None and end < start:
            return None
        elif start < size:
            ranges.append(ByteRange(start, min(size - 1 if end is None else end, size - 1) - start + 1))
    return tuple(ranges)


def content_type_of(name: str, start: bytes) -> str:
    """Return the content type of a file: by the end of its name, or its first bytes. What looks like text is text."""
    by_name = _TYPES.get(posixpath.splitext(name)[1].lower())
    if by_name is not None:
        return by_name
    by_mark = next((kind for mark, kind in _MARKS if start.startswith(mark)), None)
    return by_mark or ("application/octet-stream" if _BINARY.search(start) else _TEXT)


def list_entries(entries: Iterable[tuple[str, bool]]) -> str:
    """Return the lines of a directory's listing: names, and whether each is a directory."""
    return "".join(f'<a href="{escape_path(name)}">{_as_html(name)}</a>\n' for name in map(_with_slash, entries))


def escape_path(path: str) -> str:
    """Escape a relative path for a URL. A colon in its first part must not look like the end of a scheme."""
    escaped = quote(path.encode(errors="surrogateescape"), safe=_UNESCAPED)
    return f"./{escaped}" if ":" in escaped.partition("/")[0] else escaped


def as_http_date(modified: datetime) -> str:
    return format_datetime(modified, usegmt=True)


def modification_time(seconds: int) -> datetime | None:
    """Return the time that a file was modified; None for one that no calendar has, and for the epoch, as Go does."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, ValueError, OSError):
        return None


def _is_unmodified(headers: Mapping[str, str], modified: datetime | None) -> bool:
    if if_match := headers.get("If-Match", ""):
        return "*" in if_match
    since = _date(headers.get("If-Unmodified-Since", ""))
    return modified is None or since is None or modified <= since


def _date(text: str) -> datetime | None:
    if not text or len(text) > _LONGEST_DATE:
        return None
    try:
        found = parsedate_to_datetime(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) and int(text) <= _LARGEST else None


def _with_slash(entry: tuple[str, bool]) -> str:
    name, is_directory = entry
    return f"{name}/" if is_directory else name


def _as_html(name: str) -> str:
    text = name.encode(errors="surrogateescape").decode(errors="replace")
    return escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
