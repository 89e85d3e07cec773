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
from klet.host.files import make_directories, read_bytes, write_atomic
from klet.model.causes import CauseId, CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder

logger = logging.getLogger(__name__)

T = TypeVar("T")

DIRECTORY_MODE = 0o755
FILE_MODE = 0o600
SIZE_LIMIT = 256 << 20
DECIDER = "checkpoint.file"
SYNCED = ".synced"
"""How the name of the second file ends."""


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


class StateStore(Protocol[T]):
    """A file with state that nobody but an administrator may give up."""

    async def read_or_refuse(self) -> Found[T] | Absent:
        """Return what it holds; raises CheckpointError if that cannot be used, and leaves it where it is."""
        ...

    async def save(self, value: T) -> None:
        """Put a value on disk; raises CheckpointError."""
        ...


class CheckpointFile(Generic[T]):
    """Loads a value once at start and saves it whenever it changed. One writer.

    After a loss of power, what was saved without `sync` may be empty or torn. What was synced last is in a second file
    beside it then (`.synced`), which is read if the first is damaged.
    """

    def __init__(
        self,
        *,
        path: Path,
        form: CheckpointFormat[T],
        threads: Threads,
        clock: Clock,
        recorder: CauseRecorder | None = None,
    ) -> None:
        self._path = path
        self._synced_path = path.with_name(f"{path.name}{SYNCED}")
        self._form = form
        self._threads = threads
        self._clock = clock
        self._recorder = recorder
        """Where damage is recorded, besides the log."""
        self._writing = asyncio.Lock()
        self._on_disk: bytes | None = None
        self._is_synced = False
        """Whether that survives a loss of power."""

    @property
    def path(self) -> Path:
        return self._path

    def load(self) -> Loaded[T]:
        """Read the file, at start. Blocks. A version that is not known raises CheckpointVersion and touches nothing."""
        return self._load()[0]

    async def read(self) -> Loaded[T]:
        """Load the file on a thread, and record damage."""
        loaded, damages = await self._threads.run(self._load)
        if self._recorder is not None:
            for damage in damages:
                record_damage(self._recorder, self._path, rule=damage.rule, set_aside=damage.set_aside)
        return loaded

    async def read_or_refuse(self) -> Found[T] | Absent:
        """Load the file on a thread; raise CheckpointDamaged, and leave it where it is, if it is damaged."""
        return await self._threads.run(self._load_or_refuse)

    async def save(self, value: T, *, sync: bool = True) -> None:
        """Put a value on disk; returns when it is there. The value is read at once and may change afterwards.

        Without `sync` it survives the end of the agent at once, and a loss of power after `sync_to_disk`. Until then
        a loss of power leaves the value that was synced last, or a newer one.
        """
        data = self._form.encode(value)
        # In order: two writes on two threads could otherwise leave the older one in place.
        async with self._writing:
            if data != self._on_disk or (sync and not self._is_synced):
                await self._write(self._path, data, sync=sync)

    async def sync_to_disk(self) -> None:
        """Put what was saved last where it survives a loss of power."""
        async with self._writing:
            if self._on_disk is not None and not self._is_synced:
                await self._write(self._synced_path, self._on_disk, sync=True)

    async def _write(self, path: Path, data: bytes, *, sync: bool) -> None:
        try:
            await self._threads.run(_write_file, path, data, sync)
        except (FileError, OSError) as error:
            raise CheckpointError(f"checkpoint {path} not written: {error}") from error
        self._on_disk, self._is_synced = data, sync

    def _load(self) -> tuple[Loaded[T], tuple[Damaged, ...]]:
        """Return the value, and what was set aside."""
        own = self._load_one(self._path)
        if not isinstance(own, Damaged):
            return own, ()
        synced = self._load_one(self._synced_path)
        if not isinstance(synced, Found):
            return own, (own, synced) if isinstance(synced, Damaged) else (own,)
        logger.warning("What was synced last is used instead", extra={"file": str(self._synced_path)})
        try:
            write_atomic(self._path, self._form.encode(synced.value), mode=FILE_MODE)
        except FileError as error:
            # The next save does it, too.
            logger.warning("A damaged checkpoint is not restored yet", extra={"error": str(error)})
        return synced, (own,)

    def _load_one(self, path: Path) -> Loaded[T]:
        try:
            return self._decode(path)
        except CheckpointDamaged as error:
            return self._set_aside(path, str(error))

    def _load_or_refuse(self) -> Found[T] | Absent:
        return self._decode(self._path)

    def _decode(self, path: Path) -> Found[T] | Absent:
        try:
            data = read_bytes(path, limit=SIZE_LIMIT)
            value = self._form.decode(data)
        except FileMissing:
            return Absent()
        except FileError as error:
            raise CheckpointError(f"checkpoint cannot be read: {error}") from error
        except CheckpointVersion as error:
            raise CheckpointVersion(f"checkpoint {path}: {error}") from error
        # One that a killed agent did not sync is on the disk soon, without anyone's help.
        self._on_disk, self._is_synced = data, True
        return Found(value)

    def _set_aside(self, path: Path, rule: str) -> Damaged:
        stamp = self._clock.now().strftime("%Y%m%dT%H%M%SZ")
        target = path.with_name(f"{path.name}.corrupt-{stamp}")
        count = 1
        while target.exists():
            count += 1
            target = target.with_name(f"{path.name}.corrupt-{stamp}-{count}")
        try:
            path.rename(target)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {path} is damaged ({rule}) and cannot be set aside: {error.strerror}"
            ) from error
        logger.error(
            "Checkpoint is damaged and was set aside",
            extra={"file": str(path), "rule": rule, "set_aside": str(target)},
        )
        return Damaged(rule=rule, set_aside=target)


def _write_file(path: Path, data: bytes, sync: bool) -> None:  # noqa: FBT001 - threads pass what they are given
    if sync:
        make_directories(path.parent, mode=DIRECTORY_MODE)
    else:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    write_atomic(path, data, mode=FILE_MODE, sync=sync)


def record_damage(recorder: CauseRecorder, path: Path, *, rule: str, set_aside: Path) -> CauseId:
    """Record that a file of the agent's state was damaged, as after a loss of power, and is not used."""
    return (
        DecisionRecorder(recorder, decider=DECIDER)
        .for_node()
        .record(
            Reason.STATE_FILE_DAMAGED,
            f"{path} was damaged ({rule}) and is set aside as {set_aside.name}",
            measurements={"file": str(path), "setAside": str(set_aside)},
            next_step="go on without it",
        )
    )
