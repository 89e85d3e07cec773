"""Serves the files of a directory that others may write to (upstream: Go's `http.FileServer` on `/var/log`).

Everything is reached by descriptor below the root: links lead nowhere outside of it, and nothing but regular files
and directories is opened. Reads are of bounded size, on threads, and a client that does not read stops them.
"""

import errno
import os
import posixpath
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp import web

from klet.aio.threads import Threads
from klet.host.errors import FileError
from klet.host.readable_entry import ReadableEntry
from klet.model.foreign_text import shorten
from klet.server.static_files import (
    LISTING_END,
    LISTING_START,
    SNIFFED,
    ByteRange,
    FileAnswer,
    as_http_date,
    content_type_of,
    escape_path,
    is_cached,
    list_entries,
    modification_time,
    plan_file_answer,
)

CHUNK: Final = 128 * 1024
SORTED_ENTRIES: Final = 4096
"""Entries of a directory that are sorted and kept at a time; a longer listing is sent in such parts."""
PLAIN_TEXT: Final = "text/plain; charset=utf-8"
_INDEX: Final = "index.html"
_SAFE: Final = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}
"""Pods may write pages there: in a browser they must not act with the rights of the user who looks at them."""
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, None})
"""None: it leads out of the directory, or is a file of another kind."""


class FileServer:
    """Answers requests for the files below a directory."""

    def __init__(self, *, root: Path, threads: Threads) -> None:
        self._root = root
        self._threads = threads

    async def answer(self, request: web.Request, *, prefix: str) -> web.StreamResponse:
        """Answer with what is at the request's path behind the prefix; redirect to how it is written properly."""
        # From the raw path: names of files need not be UTF-8.
        whole = unquote_to_bytes(request.rel_url.raw_path)
        if not whole.startswith(prefix.encode()):
            return refuse(404, "404 page not found")
        path = os.fsdecode(whole.removeprefix(prefix.encode()))
        if path == _INDEX or path.endswith(f"/{_INDEX}"):
            return _redirect(request, "./")
        return await self._answer(request, path, is_direct=False)

    async def answer_file(self, request: web.Request, path: str) -> web.StreamResponse:
        """Answer with a file that the request does not name in its path."""
        return await self._answer(request, path, is_direct=True)

    async def find_missing(self, path: str) -> str:
        """Return why there is nothing at a path; empty if there is something, whatever can be done with it."""
        try:
            (await self.open(path)).close()
        except FileError as error:
            if error.errno is not None and error.errno in _NOT_THERE:
                return f"stat {shorten(f'{self._root}{_below_root(path)}')}: {os.strerror(error.errno).lower()}"
        return ""

    async def open(self, path: str) -> ReadableEntry:
        """Open a file or a directory; `..` leads no higher than the root. The caller closes it. Raises FileError."""
        return await self._threads.run(ReadableEntry.open, self._root, _below_root(path))

    async def copy(self, file: ReadableEntry, piece: ByteRange, write: Callable[[bytes], Awaitable[None]]) -> bool:
        """Write a part of a file; False if there is less of it by now. Raises FileError."""
        at, left = piece.start, piece.length
        while left:
            data = await self._threads.run(file.read, min(CHUNK, left), at)
            if not data:
                return False
            await write(data)
            at, left = at + len(data), left - len(data)
        return True

    async def _answer(self, request: web.Request, path: str, *, is_direct: bool) -> web.StreamResponse:
        try:
            with closing(await self.open(path)) as found:
                if not is_direct and found.is_directory != (posixpath.basename(path) in {"", ".", ".."}):
                    base = escape_path(posixpath.basename(path.rstrip("/")))
                    return _redirect(request, f"{base}/" if found.is_directory else f"../{base.removeprefix('./')}")
                if found.is_directory:
                    return await self._show(request, found, path)
                return await self._send(request, found, path.rstrip("/"))
        except FileError as error:
            return _refuse_error(error)

    async def _show(self, request: web.Request, directory: ReadableEntry, path: str) -> web.StreamResponse:
        with suppress(FileError), closing(await self.open(f"{path}/{_INDEX}")) as index:
            if not index.is_directory:
                return await self._send(request, index, _INDEX)
        modified = modification_time(directory.modified)
        headers = _SAFE | _last_modified(modified)
        if is_cached(request.headers, modified):
            return web.Response(status=304, headers=headers)
        more = await self._threads.run(directory.list_more, SORTED_ENTRIES)
        response = web.StreamResponse(headers=headers | {"Content-Type": "text/html; charset=utf-8"})
        # A client that has seen enough goes away at any moment.
        with suppress(ConnectionResetError):
            await response.prepare(request)
            await response.write(LISTING_START.encode())
            try:
                while more:
                    await response.write(list_entries(sorted(more)).encode())
                    more = await self._threads.run(directory.list_more, SORTED_ENTRIES)
            except FileError:
                response.force_close()  # the headers are sent: all that is left is not to end the listing
                return response
            await response.write(LISTING_END.encode())
            await response.write_eof()
        return response

    async def _send(self, request: web.Request, file: ReadableEntry, path: str) -> web.StreamResponse:
        # The length is that of this moment: what a file grows by is not sent, and one that shrinks ends the connection.
        size, modified = file.size, modification_time(file.modified)
        answer = plan_file_answer(request.headers, size=size, modified=modified)
        if answer.status in {304, 412}:
            return web.Response(status=answer.status, headers=_SAFE | _last_modified(modified))
        if answer.error:
            headers = {"Content-Range": f"bytes */{size}"} if answer.is_outside else {}
            return refuse(answer.status, answer.error, headers)
        kind = content_type_of(posixpath.basename(path), await self._threads.run(file.read, SNIFFED, 0))
        headers = _SAFE | _last_modified(modified) | {"Content-Type": kind, "Accept-Ranges": "bytes"}
        parts = _plan_parts(answer, headers, kind, size)
        response = web.StreamResponse(status=answer.status, headers=headers)
        response.content_length = sum(len(head) + piece.length for head, piece in parts)
        with suppress(ConnectionResetError):
            await response.prepare(request)
            if await self._send_parts(file, parts, response):
                await response.write_eof()
            else:
                response.force_close()
        return response

    async def _send_parts(
        self, file: ReadableEntry, parts: tuple[tuple[bytes, ByteRange], ...], response: web.StreamResponse
    ) -> bool:
        for head, piece in parts:
            if head:
                await response.write(head)
            try:
                if not await self.copy(file, piece, response.write):
                    return False
            except FileError:
                return False
        return True


def refuse(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Refuse as Go's `http.Error` does."""
    return web.Response(
        status=status, body=f"{text}\n".encode(), headers={"Content-Type": PLAIN_TEXT, **_SAFE, **(headers or {})}
    )


def _below_root(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _plan_parts(
    answer: FileAnswer, headers: dict[str, str], kind: str, size: int
) -> tuple[tuple[bytes, ByteRange], ...]:
    """Return the parts of the body, each a head and a range of the file; several ranges change the content type."""
    match answer.ranges:
        case ():
            return ((b"", ByteRange(0, size)),)
        case (only,):
            headers["Content-Range"] = only.content_range(size)
            return ((b"", only),)
        case several:
            boundary = secrets.token_hex(30)
            headers["Content-Type"] = f"multipart/byteranges; boundary={boundary}"
            heads = (
                f"--{boundary}\r\nContent-Range: {each.content_range(size)}\r\nContent-Type: {kind}\r\n\r\n"
                for each in several
            )
            first, *others = ((head.encode(), each) for head, each in zip(heads, several, strict=True))
            end = (f"\r\n--{boundary}--\r\n".encode(), ByteRange(0, 0))
            return (first, *((b"\r\n" + head, each) for head, each in others), end)


def _last_modified(modified: datetime | None) -> dict[str, str]:
    return {"Last-Modified": as_http_date(modified)} if modified is not None else {}


def _redirect(request: web.Request, to: str) -> web.Response:
    query = request.rel_url.raw_query_string
    return web.Response(status=301, headers={"Location": f"{to}?{query}" if query else to, **_SAFE})


def _refuse_error(error: FileError) -> web.Response:
    """Answer without the text of the error: it names paths of the node."""
    if error.errno in _NOT_THERE:
        return refuse(404, "404 page not found")
    if error.errno in _NOT_ALLOWED:
        return refuse(403, "403 Forbidden")
    return refuse(500, "500 Internal Server Error")
