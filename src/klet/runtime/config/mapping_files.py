"""Where the ids of pods with a user namespace outlive the agent: the file `userns` in each pod's directory."""

import logging
from pathlib import Path

from klet.aio.threads import Threads
from klet.host.beneath import list_directory, read_end, unlink_below
from klet.host.errors import FileError, FileMissing
from klet.host.files import write_atomic
from klet.model.pods import PodUID

logger = logging.getLogger(__name__)

MAPPINGS_FILE = "userns"
_LONGEST_MAPPINGS = 64 * 1024


class PodMappingFiles:
    """The file `userns` in each pod's directory."""

    def __init__(self, *, root: Path, threads: Threads) -> None:
        self._pods = root / "pods"
        self._threads = threads

    async def read(self, uid: PodUID) -> bytes | None:
        return await self._threads.run(_read, self._pods, uid)

    async def read_all(self) -> dict[PodUID, bytes]:
        """Return what previous runs of the agent wrote."""
        return await self._threads.run(_read_all, self._pods)

    async def write(self, uid: PodUID, data: bytes) -> None:
        await self._threads.run(_write, self._path(uid), data)

    async def remove(self, uid: PodUID) -> None:
        await self._threads.run(unlink_below, self._pods, uid, MAPPINGS_FILE)

    def _path(self, uid: PodUID) -> Path:
        return self._pods / uid / MAPPINGS_FILE


def _read(pods: Path, uid: PodUID) -> bytes | None:
    """Read without following links or waiting for pipes: containers with a hostPath may write there."""
    try:
        return read_end(pods, uid, MAPPINGS_FILE, limit=_LONGEST_MAPPINGS)
    except FileMissing:
        return None


def _write(path: Path, data: bytes) -> None:
    """Write through to the disk: ids must not be allocated twice after a crash of the machine."""
    write_atomic(path, data, mode=0o644)


def _read_all(pods: Path) -> dict[PodUID, bytes]:
    found: dict[PodUID, bytes] = {}
    for uid, is_directory in list_directory(pods):
        if not is_directory or not isinstance(uid, PodUID):
            continue
        try:
            data = _read(pods, uid)
        except FileError as error:
            logger.warning("The ids of a pod cannot be read", extra={"uid": uid, "error": str(error)})
            continue
        if data is not None:
            found[uid] = data
    return found
