"""The newest known state of config maps, secrets and tokens, a file each.

That an object does not exist is kept as well: a pod may start without one that is optional.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.base import json_null
from klet.api.codec import DecodeError, decode, encode
from klet.checkpoint import CheckpointDamaged, CheckpointError, CheckpointFile, Envelope, Format, Found
from klet.host.errors import FileError
from klet.host.files import remove_file
from klet.offline.errors import SealBroken
from klet.offline.sealing import Sealer

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

VERSION: Final = 1
SUFFIX: Final = ".json"
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What the API server said last: the object, or None if it said that there is none."""

    value: T | None


class _Plain(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    value: msgspec.Raw
    """`null` for an object that does not exist."""


class _Sealed(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    sealed: bytes | None


class PlainFormat(Generic[T]):
    """One object that everybody with the file may read."""

    def __init__(self, *, kind: str, owner: str, struct: type[T]) -> None:
        self._envelope = Envelope(kind=kind, version=VERSION, payload=msgspec.Raw)
        self._owner = owner
        self._struct = struct

    def encode(self, value: Known[T]) -> bytes:
        raw = json_null() if value.value is None else msgspec.Raw(encode(value.value))
        return self._envelope.encode(msgspec.Raw(msgspec.json.encode(_Plain(owner=self._owner, value=raw))))

    def decode(self, data: bytes) -> Known[T]:
        payload = _payload(_Plain, self._envelope.decode(data))
        _check_owner(payload.owner, self._owner)
        return Known(None if payload.value == json_null() else _object(self._struct, bytes(payload.value)))


class SealedFormat(Generic[T]):
    """One object that only this node can read."""

    def __init__(self, *, kind: str, owner: str, struct: type[T], sealer: Sealer) -> None:
        self._envelope = Envelope(kind=kind, version=VERSION, payload=_Sealed)
        self._owner = owner
        self._bound = f"{kind}\n{owner}".encode()
        self._struct = struct
        self._sealer = sealer

    def encode(self, value: Known[T]) -> bytes:
        sealed = None if value.value is None else self._sealer.seal(encode(value.value), owner=self._bound)
        return self._envelope.encode(_Sealed(owner=self._owner, sealed=sealed))

    def decode(self, data: bytes) -> Known[T]:
        payload = self._envelope.decode(data)
        _check_owner(payload.owner, self._owner)
        if payload.sealed is None:
            return Known(None)
        try:
            opened = self._sealer.open(payload.sealed, owner=self._bound)
        except SealBroken as error:
            raise CheckpointDamaged(f"field payload.sealed: {error}") from error
        return Known(_object(self._struct, opened))


class Files(Protocol[T]):
    """Where objects of one kind are kept."""

    async def keep(self, owner: str, value: T | None, *, version: str) -> None: ...

    async def find(self, owner: str) -> Known[T] | None: ...

    async def retain(self, is_wanted: Callable[[str], bool]) -> None: ...


class NoFiles(Generic[T]):
    """Nothing is kept."""

    async def keep(self, owner: str, value: T | None, *, version: str) -> None:
        """Nothing to do."""

    async def find(self, owner: str) -> Known[T] | None:  # noqa: ARG002 - the role's arguments
        return None

    async def retain(self, is_wanted: Callable[[str], bool]) -> None:
        """Nothing to do."""


@dataclass(slots=True)
class _Item:
    version: str | None = None
    """What is on disk, as far as this life of the agent wrote it."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class ObjectFiles(Generic[T]):
    """The files of one kind. `form` makes the format for an owner, such as `namespace/name`."""

    def __init__(
        self, *, directory: Path, form: Callable[[str], Format[Known[T]]], threads: Threads, clock: Clock
    ) -> None:
        self._directory = directory
        self._form = form
        self._threads = threads
        self._clock = clock
        self._items: dict[str, _Item] = {}

    async def keep(self, owner: str, value: T | None, *, version: str) -> None:
        """Put it on disk, unless that version is there. A failure is told: what runs does not depend on it."""
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
        """What was kept; None if that is nothing, or damaged, which is told and set aside."""
        file = self._file(owner)
        try:
            loaded = await self._threads.run(file.load)
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
        return CheckpointFile(path=path, form=self._form(owner), threads=self._threads, clock=self._clock)


def file_name(owner: str) -> str:
    """Short enough for every filesystem, and readable enough for a person."""
    return f"{file_stem(owner)}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}{SUFFIX}"


def file_stem(owner: str) -> str:
    """How the names of files begin whose owners begin so."""
    return "".join(char if char.isascii() and (char.isalnum() or char == "-") else "_" for char in owner[:_SHOWN])


def _remove_others(directory: Path, is_wanted: Callable[[str], bool]) -> None:
    for path in directory.glob(f"*{SUFFIX}"):
        if not is_wanted(path.name):
            remove_file(path)


def _check_owner(found: str, expected: str) -> None:
    if found != expected:
        raise CheckpointDamaged(f"field payload.owner is {found!r}, expected {expected!r}")


def _payload(kind: type[T], payload: bytes) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise CheckpointDamaged(f"field payload: {error}") from error


def _object(struct: type[T], data: bytes) -> T:
    try:
        return decode(struct, data)
    except DecodeError as error:
        raise CheckpointDamaged(f"field payload: {error}") from error
