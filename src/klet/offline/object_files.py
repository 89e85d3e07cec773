"""The newest known state of config maps, secrets and tokens, a file each.

That an object does not exist is kept as well: a pod may start without one that is optional.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.checkpoint import CheckpointError, CheckpointFile, CheckpointFormat, Found
from klet.host.beneath import list_directory, unlink_below
from klet.host.errors import FileError
from klet.model.causes import CauseRecorder
from klet.offline.object_formats import Known

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

SUFFIX: Final = ".json"
_SHOWN: Final = 80


class Files(Protocol[T]):
    """Where objects of one kind are kept."""

    async def keep(self, owner: str, value: T | None, *, version: str) -> None: ...

    async def find(self, owner: str) -> Known[T] | None: ...

    async def retain(self, is_wanted: Callable[[str], bool]) -> None: ...


class NoFiles(Generic[T]):
    """Nothing is kept."""

    async def keep(self, owner: str, value: T | None, *, version: str) -> None:
        """Do nothing."""

    async def find(self, owner: str) -> Known[T] | None:  # noqa: ARG002 - the role's arguments
        return None

    async def retain(self, is_wanted: Callable[[str], bool]) -> None:
        """Do nothing."""


class _Item(Struct):
    version: str | None = None
    """What is on disk, as far as this life of the agent wrote it."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class ObjectFiles(Generic[T]):
    """The files of one kind. `form` makes the format for an owner, such as `namespace/name`."""

    def __init__(
        self,
        *,
        directory: Path,
        form: Callable[[str], CheckpointFormat[Known[T]]],
        threads: Threads,
        clock: Clock,
        recorder: CauseRecorder | None = None,
    ) -> None:
        self._directory = directory
        self._form = form
        self._threads = threads
        self._clock = clock
        self._recorder = recorder
        self._items: dict[str, _Item] = {}

    async def keep(self, owner: str, value: T | None, *, version: str) -> None:
        """Write it to disk, unless that version is there. A failure is only logged: what runs does not depend on it."""
        item = self._items.setdefault(owner, _Item())
        async with item.writing:
            if item.version == version:
                return
            try:
                await self._file(owner).save(Known(value))
            except CheckpointError as error:
                logger.warning(
                    "Not kept for the time without an API server", extra={"object": owner, "error": str(error)}
                )
            else:
                item.version = version

    async def find(self, owner: str) -> Known[T] | None:
        """Return what was kept; None if that is nothing, or damaged, which is logged, recorded and set aside."""
        file = self._file(owner)
        try:
            loaded = await file.read()
        except CheckpointError as error:
            logger.warning("What was kept cannot be read", extra={"object": owner, "error": str(error)})
            return None
        return loaded.value if isinstance(loaded, Found) else None

    async def retain(self, is_wanted: Callable[[str], bool]) -> None:
        """Remove the files whose names are not wanted. What was set aside stays for a person to look at."""
        self._items = {owner: item for owner, item in self._items.items() if is_wanted(file_name(owner))}
        try:
            await self._threads.run(_remove_others, self._directory, is_wanted)
        except FileError as error:
            logger.warning("What was kept cannot be removed", extra={"error": str(error)})

    def _file(self, owner: str) -> CheckpointFile[Known[T]]:
        path = self._directory / file_name(owner)
        return CheckpointFile(
            path=path, form=self._form(owner), threads=self._threads, clock=self._clock, recorder=self._recorder
        )


def file_name(owner: str) -> str:
    """Return a name short enough for every filesystem, and readable enough for a person."""
    return f"{file_stem(owner)}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}{SUFFIX}"


def file_stem(owner: str) -> str:
    """Return how the names of files begin whose owners begin so."""
    return "".join(char if char.isascii() and (char.isalnum() or char == "-") else "_" for char in owner[:_SHOWN])


def _remove_others(directory: Path, is_wanted: Callable[[str], bool]) -> None:
    above, name = directory.parent, directory.name
    for entry in list_directory(above, name, one_mount=True):
        if entry.name.endswith(SUFFIX) and not is_wanted(entry.name):
            unlink_below(above, name, entry.name)
