"""Reads what ended containers left on disk, on threads of its own: a disk that hangs keeps nobody else waiting."""

from pathlib import Path

from klet.aio.threads import Threads
from klet.host.errors import FileMissing
from klet.host.files import read_end
from klet.logs.tail import read_end as read_end_of_log


class HostLeftFiles:
    """Termination messages and logs as files."""

    def __init__(self, *, threads: Threads) -> None:
        self._threads = threads

    async def end_of_file(self, path: str, *, limit: int) -> bytes | None:
        try:
            return await self._threads.run(read_end, Path(path), limit=limit)
        except FileMissing:
            return None

    async def end_of_log(self, path: str, *, lines: int, limit: int) -> bytes:
        return await self._threads.run(read_end_of_log, Path(path), lines=lines, limit=limit)
