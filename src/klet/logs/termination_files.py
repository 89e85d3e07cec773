"""Reads termination messages and the ends of logs, on its own threads: a disk that hangs delays nothing else."""

from pathlib import Path

from klet.aio.threads import Threads
from klet.host.beneath import read_end, split_end
from klet.host.errors import FileMissing
from klet.logs.tail import read_end as read_end_of_log


class TerminationFileReader:
    """Termination messages and logs as files."""

    def __init__(self, *, root: Path, threads: Threads) -> None:
        self._pods = root / "pods"
        self._threads = threads

    async def read_tail(self, path: str, *, limit: int) -> bytes | None:
        try:
            return await self._threads.run(self._read_end, path, limit)
        except FileMissing:
            return None

    async def read_log_tail(self, path: str, *, lines: int, limit: int) -> bytes:
        return await self._threads.run(read_end_of_log, Path(path), lines=lines, limit=limit)

    def _read_end(self, path: str, limit: int) -> bytes:
        """Read the end of a file that was mounted into a container.

        It is klet's own termination-log file, or one whose path the pod's author chose. A container may have replaced
        it with a symlink, so none is followed.
        """
        known = self._pods if Path(path).is_relative_to(self._pods) else Path("/")
        base, names = split_end(path, max(1, len(Path(path).parts) - len(known.parts)))
        return read_end(base, *names, limit=limit)
