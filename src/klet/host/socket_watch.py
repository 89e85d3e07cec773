"""Unix sockets that come and go in a directory and below it (upstream: the watcher of the plugin manager)."""

import logging
import os
import stat
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from asyncinotify import Event, Inotify, Mask
from msgspec import Struct

from klet.aio.threads import Threads
from klet.host.errors import file_error

logger = logging.getLogger(__name__)

MODE: Final = 0o755
MOST_DIRECTORIES: Final = 1000
MOST_ENTRIES: Final = 10_000
"""Of one directory. What is beyond is not looked at: nobody has so many plugins."""
_CAME: Final = Mask.CREATE | Mask.MOVED_TO
_SELF: Final = Mask.DELETE_SELF | Mask.MOVE_SELF
_WATCHED: Final = _CAME | Mask.DELETE | _SELF | Mask.ONLYDIR
_GONE: Final = _SELF | Mask.UNMOUNT | Mask.IGNORED


class FileIdentity(NamedTuple):
    """Which file has a path: the entry itself, and what it links to. A socket that is made again is another file."""

    entry: tuple[int, int, int]
    target: tuple[int, int, int]


class SocketSeen(Struct, frozen=True):
    """A socket has come."""

    path: str
    identity: FileIdentity


class PathRemoved(Struct, frozen=True):
    """An entry of a directory has gone, of whatever kind it was."""

    path: str


class SocketsListed(Struct, frozen=True):
    """All sockets that there are."""

    sockets: Mapping[str, FileIdentity]


SocketChange: TypeAlias = SocketSeen | PathRemoved | SocketsListed


class EntryKind(Enum):
    """What an entry of a directory is."""

    SOCKET = auto()
    """A socket, or a link to one."""
    DIRECTORY = auto()
    LINKED_DIRECTORY = auto()
    OTHER = auto()


class EntryStep(Enum):
    """What is done with an entry."""

    IGNORE = auto()
    WATCH = auto()
    """Watch it and look into it."""
    REPORT = auto()


def decide_entry(name: str, kind: EntryKind, *, is_walked: bool) -> EntryStep:
    """Return what to do with an entry that has just come, or that was found while walking a directory.

    Upstream looks at the dot only when a directory comes, and follows links to directories only then.
    """
    is_hidden = name.startswith(".")
    match kind:
        case EntryKind.SOCKET:
            return EntryStep.IGNORE if is_hidden else EntryStep.REPORT
        case EntryKind.DIRECTORY:
            return EntryStep.IGNORE if is_hidden and not is_walked else EntryStep.WATCH
        case EntryKind.LINKED_DIRECTORY:
            return EntryStep.IGNORE if is_hidden or is_walked else EntryStep.WATCH
        case EntryKind.OTHER:
            return EntryStep.IGNORE


async def watch_sockets(root: Path, *, threads: Threads) -> AsyncGenerator[SocketChange, None]:
    """Yield changes without end: first all sockets, and all again when changes may have been missed.

    The directory is made if it is not there. Raises FileError if it cannot be watched.
    """
    while True:
        await threads.run(_make, root)
        with _open(root) as notifier:
            yield SocketsListed(await _walk(notifier, root, threads))
            async for event in notifier:
                if event.mask & Mask.Q_OVERFLOW or _is_gone(event, root):
                    break
                for change in await _read_event(notifier, event, threads):
                    yield change


async def _read_event(notifier: Inotify, event: Event, threads: Threads) -> tuple[SocketChange, ...]:
    path = event.path
    if path is None or event.name is None:
        return ()
    if event.mask & Mask.DELETE:
        return (PathRemoved(str(path)),)
    if not event.mask & _CAME:
        return ()
    try:
        entry = await threads.run(_look, path)
    except OSError as error:
        logger.info("Plugin path not read", extra={"path": ascii(str(path)), "error": str(error.strerror)})
        return ()
    match decide_entry(path.name, entry.kind, is_walked=False):
        case EntryStep.REPORT:
            return (SocketSeen(str(path), entry.identity),) if _is_text(path) else ()
        case EntryStep.WATCH:
            found = await _walk(notifier, path, threads)
            return tuple(SocketSeen(socket, identity) for socket, identity in found.items())
        case EntryStep.IGNORE:
            return ()


async def _walk(notifier: Inotify, top: Path, threads: Threads) -> dict[str, FileIdentity]:
    """Watch a directory and those below it; return the sockets in them. Watched first: nothing is missed in between."""
    sockets: dict[str, FileIdentity] = {}
    waiting = deque((top,))
    while waiting:
        directory = waiting.popleft()
        if len(notifier.watches) >= MOST_DIRECTORIES:
            logger.warning("Too many directories for plugins", extra={"path": str(top), "most": MOST_DIRECTORIES})
            break
        try:
            watch = notifier.add_watch(directory, _WATCHED)
            if watch.path != directory:
                continue  # a link to what is watched already
            entries = await threads.run(_scan, directory)
        except OSError as error:
            if directory == top and not notifier.watches:
                raise file_error("watch", directory, error) from error
            logger.info("Plugin path not read", extra={"path": ascii(str(directory)), "error": str(error.strerror)})
            continue
        for entry in entries:
            match decide_entry(entry.path.name, entry.kind, is_walked=True):
                case EntryStep.WATCH:
                    waiting.append(entry.path)
                case EntryStep.REPORT if _is_text(entry.path):
                    sockets[str(entry.path)] = entry.identity
                case _:
                    pass
    return sockets


class _Entry(NamedTuple):
    path: Path
    kind: EntryKind
    identity: FileIdentity


def _scan(directory: Path) -> list[_Entry]:
    entries: list[_Entry] = []
    with os.scandir(directory) as found:
        for number, each in enumerate(found):
            if number >= MOST_ENTRIES:
                logger.warning("Too many files for plugins", extra={"path": str(directory), "most": MOST_ENTRIES})
                break
            try:
                entries.append(_look(Path(each.path)))
            except OSError as error:
                # It has gone meanwhile, or is a link to nothing.
                logger.debug("Plugin path not read", extra={"path": ascii(each.path), "error": str(error.strerror)})
    return entries


def _look(path: Path) -> _Entry:
    entry = path.lstat()
    target = path.stat() if stat.S_ISLNK(entry.st_mode) else entry
    identity = FileIdentity(_identity(entry), _identity(target))
    if stat.S_ISDIR(target.st_mode):
        return _Entry(path, EntryKind.DIRECTORY if target is entry else EntryKind.LINKED_DIRECTORY, identity)
    return _Entry(path, EntryKind.SOCKET if stat.S_ISSOCK(target.st_mode) else EntryKind.OTHER, identity)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    # Not the time of the last status change: registrars change the mode of their sockets.
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _is_text(path: Path) -> bool:
    """Return whether a path can be shown: it becomes the label of a metric, and an address."""
    if str(path).isprintable():
        return True
    logger.warning("A plugin socket with an unreadable name is ignored", extra={"path": ascii(str(path))})
    return False


def _is_gone(event: Event, root: Path) -> bool:
    """Return whether the directory itself has gone, and not one below it."""
    watch = event.watch
    return bool(event.mask & _GONE) and event.name is None and watch is not None and watch.path == root


def _make(root: Path) -> None:
    try:
        root.mkdir(mode=MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("make", root, error) from error


def _open(root: Path) -> Inotify:
    try:
        return Inotify()
    except OSError as error:
        raise file_error("watch", root, error) from error
