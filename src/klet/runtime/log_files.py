"""Log files of containers on disk: their links for collectors of the whole node, and their removal.

The runtime writes the logs; klet names them, links them and takes them away again.
"""

import errno
import logging
import os
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.threads import Threads
from klet.host.beneath import (
    list_directory,
    make_directories,
    open_directory,
    remove_below,
    split_end,
    unlink_below,
)
from klet.host.errors import FileError, FileMissing, HostError
from klet.model.pods import PodUID
from klet.runtime import labels

logger = logging.getLogger(__name__)

LOG_DEPTH = 3
"""`<pod>/<container>/<file>` below the directory of all logs."""
_NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class LogDirectory(Struct, frozen=True):
    """The log directory of a pod."""

    uid: PodUID
    name: str


class LogFiles:
    """Links, lists and removes logs."""

    def __init__(self, *, logs: Path, links: Path, threads: Threads) -> None:
        self._logs = logs
        self._links = links
        self._threads = threads

    async def link(self, name: str, log: str) -> None:
        """Link a log for collectors. A container can live without, so a failure is only logged."""
        try:
            await self._threads.run(self._link, name, log)
        except (OSError, HostError) as error:
            logger.error("Log not linked", extra={"path": log, "error": str(error)})

    async def unlink(self, name: str) -> None:
        await self._threads.run(unlink_below, self._links, name)

    async def remove_log(self, log: str) -> None:
        """Remove a log with its rotated files."""
        await self._threads.run(_remove_log, log)

    async def make_way(self, log: str) -> None:
        """Remove what is at the path of a new log and is no file: the runtime follows links, and waits at pipes."""
        await self._threads.run(_make_way, log)

    async def directories(self) -> tuple[LogDirectory, ...]:
        """Return the log directories of all pods; entries with other names are not klet's."""
        entries = await self._threads.run(list_directory, self._logs)
        owners = ((labels.log_directory_owner(entry.name), entry.name) for entry in entries)
        return tuple(LogDirectory(uid, name) for uid, name in owners if uid is not None)

    async def remove_directory(self, directory: LogDirectory) -> None:
        await self._threads.run(remove_below, self._logs, directory.name)

    async def dangling_links(self) -> tuple[str, ...]:
        """Return names of links whose log is gone."""
        return await self._threads.run(self._dangling)

    def _link(self, name: str, log: str) -> None:
        try:
            Path(log).stat()
        except FileNotFoundError:
            return
        except OSError as error:
            logger.debug("Log linked unseen", extra={"path": log, "error": str(error)})
        unlink_below(self._links, name)
        make_directories(self._links, mode=0o755)
        with open_directory(self._links) as links:
            os.symlink(log, name, dir_fd=links)

    def _dangling(self) -> tuple[str, ...]:
        names = [entry.name for entry in list_directory(self._links) if entry.name.endswith(".log")]
        return tuple(name for name in names if _leads_nowhere(self._links / name))


def _leads_nowhere(link: Path) -> bool:
    """Return whether there cannot be a log where a link leads. Who writes to the directory chooses where that is."""
    if not link.is_symlink():
        return False
    try:
        link.stat()
    except OSError as error:
        return error.errno in _NOWHERE
    return False


def _make_way(log: str) -> None:
    logs, (pod, container, file) = split_end(log, LOG_DEPTH)
    try:
        with open_directory(logs, pod, container) as directory:
            mode = os.lstat(file, dir_fd=directory).st_mode
    except (FileMissing, FileNotFoundError):
        return
    if not stat.S_ISREG(mode):
        logger.warning("Removed what was at the path of a log", extra={"path": log})
        remove_below(logs, pod, container, file)


def _remove_log(log: str) -> None:
    """Remove a log that the runtime names. If its path leads through no directory of ours, it is no log of ours."""
    logs, (pod, container, file) = split_end(log, LOG_DEPTH)
    try:
        entries = list_directory(logs, pod, container, one_mount=True)
    except FileError as error:
        if error.errno != errno.ENOTDIR:
            raise
        logger.warning("Log not removed", extra={"path": log, "error": str(error)})
        return
    for entry in entries:
        if not entry.is_directory and (entry.name == file or entry.name.startswith(f"{file}.")):
            unlink_below(logs, pod, container, entry.name)
