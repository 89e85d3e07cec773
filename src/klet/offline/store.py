"""The directory of what is kept: its permissions, its content, and what of it can be used at a start.

klet-offline/        0700
  key                32 random bytes, 0600
  pods.json          the accepted pods
  surroundings.json  the node, services, runtime classes, trust bundles
  configmaps/        one file each
  secrets/, tokens/  one file each, sealed with the key
"""

import logging
import secrets
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.authentication import TokenRequest
from klet.api.config import ConfigMap, Secret
from klet.checkpoint import CheckpointError, CheckpointFile, Found, record_damage
from klet.errors import KletError
from klet.host.beneath import list_directory, unlink_below
from klet.host.errors import FileError, FileMissing
from klet.host.files import is_unfinished, make_directories, read_bytes, remove_file, write_atomic
from klet.model.causes import CauseRecorder
from klet.offline.errors import KeyUnusable
from klet.offline.object_files import Files, NoFiles, ObjectFiles
from klet.offline.object_formats import PlainFormat, SealedFormat, Sealer
from klet.offline.snapshot import AcceptedPods, KeptCluster, KeptClusterFormat, PodsFormat

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

MakeSealer: TypeAlias = Callable[[bytes], Sealer]
"""Builds a sealer from the key of the node."""

MODE: Final = 0o700
_CONFIG_MAPS, _SECRETS, _TOKENS = _PLACES = ("configmaps", "secrets", "tokens")
KEY_SIZE: Final = 32
"""Bytes of an AES-256 key."""
KEY_RULE: Final = f"it must have {KEY_SIZE} bytes, not all of them zero"
KEY_MODE: Final = 0o600


class AcceptedFile:
    """The accepted pods on disk. What cannot be brought up to date is removed: wrong memory is worse than none."""

    def __init__(self, *, file: CheckpointFile[AcceptedPods], threads: Threads) -> None:
        self._file = file
        self._threads = threads

    async def save(self, value: AcceptedPods) -> None:
        try:
            await self._file.save(value)
        except CheckpointError:
            await self._discard()
            raise

    async def _discard(self) -> None:
        try:
            await self._threads.run(remove_file, self._file.path)
        except FileError as error:
            logger.error(
                "Outdated pods are on disk: remove the file before the next start", extra={"error": str(error)}
            )


class OfflineStore(Struct, frozen=True, kw_only=True):
    """Where things are kept, and what the previous run of the agent has left."""

    pods: AcceptedFile
    surroundings: CheckpointFile[KeptCluster]
    config_maps: Files[ConfigMap]
    secrets: Files[Secret]
    tokens: Files[TokenRequest]
    left_pods: AcceptedPods | None
    left_surroundings: KeptCluster | None


async def open_store(
    directory: Path,
    *,
    node_name: str,
    make_sealer: MakeSealer,
    threads: Threads,
    clock: Clock,
    recorder: CauseRecorder | None = None,
) -> OfflineStore:
    """Make the directory and read what is there. A fault is logged and recorded, and the agent starts without it."""
    await threads.run(_prepare, directory)
    aside = await threads.run(_set_damaged_key_aside, directory / "key")
    if aside is not None and recorder is not None:
        record_damage(recorder, directory / "key", rule=KEY_RULE, set_aside=aside)
    sealer = await threads.run(_open_sealer, directory / "key", make_sealer)

    def sealed(kind: str, struct: type[T], place: str) -> Files[T]:
        if sealer is None:
            return NoFiles()
        form = partial(_sealed_format, kind, struct, sealer)
        return ObjectFiles(directory=directory / place, form=form, threads=threads, clock=clock, recorder=recorder)

    pods = CheckpointFile(
        path=directory / "pods.json", form=PodsFormat(), threads=threads, clock=clock, recorder=recorder
    )
    surroundings = CheckpointFile(
        path=directory / "surroundings.json",
        form=KeptClusterFormat(),
        threads=threads,
        clock=clock,
        recorder=recorder,
    )
    return OfflineStore(
        pods=AcceptedFile(file=pods, threads=threads),
        surroundings=surroundings,
        config_maps=ObjectFiles(
            directory=directory / _CONFIG_MAPS,
            form=_config_map_format,
            threads=threads,
            clock=clock,
            recorder=recorder,
        ),
        secrets=sealed("KeptSecret", Secret, _SECRETS),
        tokens=sealed("KeptToken", TokenRequest, _TOKENS),
        left_pods=await _load(pods, node_name),
        left_surroundings=await _load(surroundings, node_name),
    )


def _prepare(directory: Path) -> None:
    try:
        directory.mkdir(mode=MODE, parents=True, exist_ok=True)
        directory.chmod(MODE)
    except OSError as error:
        logger.error("The directory of kept pods cannot be used", extra={"file": str(directory), "error": str(error)})
        return
    for place in ((), *((name,) for name in _PLACES)):
        try:
            _remove_unfinished(directory, *place)
        except FileError as error:
            logger.warning("Unfinished files of kept pods stay", extra={"error": str(error)})


def _remove_unfinished(directory: Path, *place: str) -> None:
    """Remove halves of files whose writers were killed."""
    for entry in list_directory(directory, *place, one_mount=True):
        if is_unfinished(entry.name) and not entry.is_directory:
            unlink_below(directory, *place, entry.name)


def _open_sealer(key: Path, make_sealer: MakeSealer) -> Sealer | None:
    try:
        return make_sealer(ensure_key(key))
    except KletError as error:
        logger.error("Secrets and tokens are not kept: they cannot be sealed", extra={"error": str(error)})
        return None


L = TypeVar("L", AcceptedPods, KeptCluster)


async def _load(file: CheckpointFile[L], node_name: str) -> L | None:
    try:
        loaded = await file.read()
    except CheckpointError as error:
        logger.error("What was kept cannot be used", extra={"error": str(error)})
        return None
    if not isinstance(loaded, Found):
        return None
    if loaded.value.node_name != node_name:
        logger.error(
            "What was kept belongs to another node and is not used",
            extra={"file": str(file.path), "node": loaded.value.node_name},
        )
        return None
    return loaded.value


def _config_map_format(owner: str) -> PlainFormat[ConfigMap]:
    return PlainFormat(kind="KeptConfigMap", owner=owner, struct=ConfigMap)


def _sealed_format(kind: str, struct: type[T], sealer: Sealer, owner: str) -> SealedFormat[T]:
    return SealedFormat(kind=kind, owner=owner, struct=struct, sealer=sealer)


def ensure_key(path: Path) -> bytes:
    """Return the key in this file; a new one if there is none. Blocks."""
    try:
        key = read_bytes(path)
    except FileMissing:
        return _make_key(path)
    except FileError as error:
        raise KeyUnusable(f"the key of the node cannot be read: {error}; remove the file to have a new one") from error
    if not _is_key(key):
        _set_key_aside(path)
        return _make_key(path)
    if (mode := stat.S_IMODE(path.stat().st_mode)) != KEY_MODE:
        logger.warning("The key of the node was open to others", extra={"file": str(path), "mode": f"{mode:o}"})
        path.chmod(KEY_MODE)
    return key


def _is_key(data: bytes) -> bool:
    # A loss of power may leave zeros, which would be a key that everyone knows.
    return len(data) == KEY_SIZE and any(data)


def _set_damaged_key_aside(path: Path) -> Path | None:
    """Set a key aside that is none; return its new name. What cannot be read is left to `ensure_key`."""
    try:
        return None if _is_key(read_bytes(path)) else _set_key_aside(path)
    except (FileError, KeyUnusable):
        return None


def _set_key_aside(path: Path) -> Path:
    """Make room for a new key. What the right one sealed never opens again: it is set aside when it is read."""
    aside = path.with_name(f"{path.name}.corrupt")
    logger.error(
        "The key of the node is damaged and was set aside",
        extra={"file": str(path), "rule": KEY_RULE, "set_aside": str(aside)},
    )
    try:
        path.replace(aside)
    except OSError as error:
        raise KeyUnusable(f"the key of the node {path} is damaged and cannot be set aside: {error.strerror}") from error
    return aside


def _make_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_SIZE)
    try:
        # Through to the disk: what is sealed next must not outlive the only key that opens it.
        make_directories(path.parent, mode=0o700)
        write_atomic(path, key, mode=KEY_MODE)
    except (FileError, OSError) as error:
        raise KeyUnusable(f"the key of the node {path} cannot be made: {error}") from error
    return key
