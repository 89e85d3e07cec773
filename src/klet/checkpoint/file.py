"""One checkpoint file (checkpoint manager): atomic writes in order; a damaged file is renamed and logged."""

import asyncio
import logging
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.checkpoint.errors import CheckpointDamaged, CheckpointError, CheckpointVersion
from klet.host.errors import FileError, FileMissing
from klet.host.files import read_bytes, sync_file, write_atomic

logger = logging.getLogger(__name__)

T = TypeVar("T")

DIRECTORY_MODE = 0o755
FILE_MODE = 0o600
SIZE_LIMIT = 256 << 20


class CheckpointFormat(Protocol[T]):
    """How a value is encoded in a file."""

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T:
        """Raise CheckpointDamaged with the rule that is broken, CheckpointVersion for one not known."""
        ...


class Found(Struct, Generic[T], frozen=True):
    """The file was there and whole."""

    value: T


class Absent(Struct, frozen=True):
    """There was no file."""


class Damaged(Struct, frozen=True):
    """The file broke a rule and lies elsewhere now; the state has to be found another way."""

    rule: str
    set_aside: Path


Loaded: TypeAlias = Found[T] | Absent | Damaged


class CheckpointFile(Generic[T]):
    """Loads a value once at start and saves it whenever it changed. One writer."""

    def __init__(self, *, path: Path, form: CheckpointFormat[T], threads: Threads, clock: Clock) -> None:
        self._path = path
        self._form = form
        self._threads = threads
        self._clock = clock
        self._writing = asyncio.Lock()
        self._on_disk: bytes | None = None

    @property
    def path(self) -> Path:
        return self._path

    def load(self) -> Loaded[T]:
        """Read the file, at start. A version that is not known raises CheckpointVersion and touches nothing."""
        try:
            data = read_bytes(self._path, limit=SIZE_LIMIT)
            value = self._form.decode(data)
        except FileMissing:
            return Absent()
        except FileError as error:
            raise CheckpointError(f"checkpoint cannot be read: {error}") from error
        except CheckpointVersion as error:
            raise CheckpointVersion(f"checkpoint {self._path}: {error}") from error
        except CheckpointDamaged as error:
            return self._set_aside(str(error))
        self._on_disk = data
        return Found(value)

    async def save(self, value: T, *, sync: bool = True) -> None:
        """Put a value on disk; returns when it is there. The value is read at once and may change afterwards.

        Without `sync` it survives the end of the agent at once, and a crash of the machine after `sync_to_disk`.
        """
        data = self._form.encode(value)
        # In order: two writes on two threads could otherwise leave the older one in place.
        async with self._writing:
            if data == self._on_disk:
                return
            try:
                await self._threads.run(self._write, data, sync)
            except (FileError, OSError) as error:
                raise CheckpointError(f"checkpoint {self._path} not written: {error}") from error
            self._on_disk = data

    async def sync_to_disk(self) -> None:
        """Sync what was saved to disk (fsync), so that it survives a crash of the machine."""
        async with self._writing:
            try:
                await self._threads.run(sync_file, self._path)
            except FileError as error:
                raise CheckpointError(f"checkpoint {self._path} not written: {error}") from error

    def _write(self, data: bytes, sync: bool) -> None:  # noqa: FBT001 - threads pass what they are given
        self._path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        write_atomic(self._path, data, mode=FILE_MODE, sync=sync)

    def _set_aside(self, rule: str) -> Damaged:
        stamp = self._clock.now().strftime("%Y%m%dT%H%M%SZ")
        target = self._path.with_name(f"{self._path.name}.corrupt-{stamp}")
        count = 1
        while target.exists():
            count += 1
            target = target.with_name(f"{self._path.name}.corrupt-{stamp}-{count}")
        try:
            self._path.rename(target)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self._path} is damaged ({rule}) and cannot be set aside: {error.strerror}"
            ) from error
        logger.error(
            "Checkpoint is damaged and was set aside",
            extra={"file": str(self._path), "rule": rule, "set_aside": str(target)},
        )
        return Damaged(rule=rule, set_aside=target)
