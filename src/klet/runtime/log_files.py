"""Log files of containers on disk: their links for collectors of the whole node, and their removal.

The runtime writes the logs; klet names them, links them and takes them away again.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from klet.aio.threads import Threads
from klet.host.errors import HostError
from klet.host.files import remove_file, remove_tree
from klet.model.pods import PodUID

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogDirectory:
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
        except OSError as error:
            logger.error("Log not linked", extra={"path": log, "error": str(error)})

    async def unlink(self, name: str) -> None:
        await self._threads.run(remove_file, self._links / name)

    async def remove_log(self, log: str) -> None:
        """Remove a log with its rotated files."""
        await self._threads.run(_remove_log, Path(log))

    async def directories(self) -> tuple[LogDirectory, ...]:
        """The log directories of all pods; what is not named like one belongs to somebody else."""
        names = await self._threads.run(_names_in, self._logs)
        return tuple(LogDirectory(PodUID(name.rpartition("_")[2]), name) for name in names if name.count("_") == 2)

    async def remove_directory(self, directory: LogDirectory) -> None:
        await self._threads.run(remove_tree, self._logs / directory.name)

    async def dangling_links(self) -> tuple[str, ...]:
        """Names of links whose log is gone."""
        return await self._threads.run(self._dangling)

    def _link(self, name: str, log: str) -> None:
        try:
            Path(log).stat()
        except FileNotFoundError:
            return
        except OSError as error:
            logger.debug("Log linked unseen", extra={"path": log, "error": str(error)})
        self._links.mkdir(parents=True, exist_ok=True)
        path = self._links / name
        path.unlink(missing_ok=True)
        path.symlink_to(log)

    def _dangling(self) -> tuple[str, ...]:
        links = (self._links / name for name in _names_in(self._links) if name.endswith(".log"))
        return tuple(link.name for link in links if link.is_symlink() and not link.exists())


def _remove_log(log: Path) -> None:
    for name in _names_in(log.parent):
        if name.startswith(log.name):
            remove_file(log.parent / name)


def _names_in(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HostError(f"cannot list {directory}: {error.strerror}") from error
