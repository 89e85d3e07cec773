"""Answers node log queries: lines of services from the journal, or from their files below the log directory."""

import asyncio
import errno
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, closing, suppress
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from aiohttp import web

from klet.host.errors import FileError, ProcessFailed
from klet.host.readable_entry import ReadableEntry
from klet.server.file_server import FileServer, refuse
from klet.server.node_log_query import NodeLogQuery, build_journal_arguments, file_names_of, split_services
from klet.server.static_files import ByteRange

AT_ONCE: Final = 4
"""Queries that are answered at a time: each may keep a processor busy until its deadline."""
DEADLINE: Final = timedelta(seconds=30)
_GZIP: Final = 16 + zlib.MAX_WBITS
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class JournalReader(Protocol):
    """The journal of the machine."""

    async def units(self) -> frozenset[str]: ...

    def read(self, arguments: Sequence[str]) -> AsyncGenerator[bytes, None]: ...


class NodeLogs:
    """Copies the lines that queries ask for."""

    def __init__(self, *, journal: JournalReader, files: FileServer, deadline: timedelta = DEADLINE) -> None:
        self._journal = journal
        self._files = files
        self._deadline = deadline
        self._running = 0

    async def answer(self, request: web.Request, query: NodeLogQuery) -> web.StreamResponse:
        """Answer a query for services that is valid; what cannot be read is said in the text, as upstream does."""
        if self._running >= AT_ONCE:
            return refuse(429, f"{AT_ONCE} node log queries are being answered", {"Retry-After": "1"})
        self._running += 1
        try:
            return await self._answer(request, query)
        finally:
            self._running -= 1

    async def _answer(self, request: web.Request, query: NodeLogQuery) -> web.StreamResponse:
        headers = {"Content-Type": "text/plain;charset=UTF-8", "X-Content-Type-Options": "nosniff"}
        # Exactly as upstream: a list of encodings gets none.
        packer = zlib.compressobj(1, wbits=_GZIP) if request.headers.get("Accept-Encoding") == "gzip" else None
        if packer is not None:
            headers["Content-Encoding"] = "gzip"
        response = web.StreamResponse(headers=headers)

        async def write(data: bytes) -> None:
            if packed := packer.compress(data) if packer is not None else data:
                await response.write(packed)

        # A client that has seen enough goes away at any moment.
        with suppress(ConnectionResetError):
            await response.prepare(request)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._deadline.total_seconds()):
                    await self._copy(query, write)
            if packer is not None:
                await response.write(packer.flush())
            await response.write_eof()
        return response

    async def _copy(self, query: NodeLogQuery, write: Write) -> None:
        native, others = split_services(query.services, await self._journal.units())
        if native:
            await self._copy_journal(query, native, write)
        if others and query.has_options:
            text = f"options present and query resolved to log files for [{' '.join(others)}]"
            await write(f"\n{text}\ntry without specifying options\n".encode())
            return
        for service in others:
            await self._copy_file(service, write)

    async def _copy_journal(self, query: NodeLogQuery, services: Sequence[str], write: Write) -> None:
        try:
            async with aclosing(self._journal.read(build_journal_arguments(query, services))) as pieces:
                async for piece in pieces:
                    await write(piece)
        except ProcessFailed:
            await write(b"\nerror: journal output not available\n")

    async def _copy_file(self, service: str, write: Write) -> None:
        try:
            found = await self._find_file(service)
            if found is None:
                await write(f"\nlog not found for {service}\n".encode())
                return
            with closing(found):
                await self._files.copy(found, ByteRange(0, found.size), write)
        except FileError:
            # Without the text of the error: it names paths of the node.
            await write(f"\nerror getting log for {service}\n".encode())

    async def _find_file(self, service: str) -> ReadableEntry | None:
        for name in file_names_of(service):
            try:
                found = await self._files.open(name)
            except FileError as error:
                if error.errno not in _NOT_THERE:
                    raise
                continue
            if not found.is_directory:
                return found
            found.close()
        return None
