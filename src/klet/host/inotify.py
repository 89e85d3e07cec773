"""Changes in one directory, which may not exist yet, may go away and may be replaced."""

from collections.abc import AsyncGenerator
from enum import StrEnum
from pathlib import Path

from asyncinotify import Event, Inotify, Mask
from msgspec import Struct

from klet.host.errors import file_error


class ChangeKind(StrEnum):
    """What happened to an entry of the directory."""

    CREATED = "created"
    WRITTEN = "written"
    """A file that was open for writing was closed."""
    MOVED_IN = "moved in"
    MOVED_OUT = "moved out"
    DELETED = "deleted"
    RESCAN = "rescan"
    """Anything may have happened: look at the whole directory, which may be missing."""


class DirectoryChange(Struct, frozen=True):
    """One change; a RESCAN has no name."""

    kind: ChangeKind
    name: str = ""


_RESCAN = DirectoryChange(ChangeKind.RESCAN)
_KINDS = {
    Mask.CREATE: ChangeKind.CREATED,
    Mask.CLOSE_WRITE: ChangeKind.WRITTEN,
    Mask.MOVED_TO: ChangeKind.MOVED_IN,
    Mask.MOVED_FROM: ChangeKind.MOVED_OUT,
    Mask.DELETE: ChangeKind.DELETED,
}
_GONE = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT | Mask.IGNORED
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
_ENTRIES = Mask.CREATE | Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE
_APPEARING = Mask.CREATE | Mask.MOVED_TO


async def watch_directory(directory: Path) -> AsyncGenerator[DirectoryChange, None]:
    """Yield changes without end. The first is a RESCAN, once the watch is in place, so that no change is missed.

    Another RESCAN comes when the kernel lost events, when the directory goes away and when it is there again. That a
    parent of it was moved is not noticed.
    """
    while True:
        with _open(directory) as notifier:
            if _attach(notifier, directory, _ENTRIES):
                yield _RESCAN
                async for event in notifier:
                    if event.mask & _GONE:
                        break
                    for change in _changes(event):
                        yield change
                yield _RESCAN
            else:
                await _appearance(notifier, directory)


def _changes(event: Event) -> tuple[DirectoryChange, ...]:
    if event.mask & Mask.Q_OVERFLOW:
        return (_RESCAN,)
    return tuple(DirectoryChange(kind, str(event.name)) for bit, kind in _KINDS.items() if event.mask & bit)


async def _appearance(notifier: Inotify, directory: Path) -> None:
    """Wait until the next missing part of the path may be there; the caller looks again."""
    part, parent = directory, directory.parent
    while not parent.is_dir():
        part, parent = parent, parent.parent
    # Looked at once more under the watch: it may have appeared just before.
    if not _attach(notifier, parent, _APPEARING) or part.is_dir():
        return
    async for event in notifier:
        if event.mask & _GONE or event.mask & Mask.Q_OVERFLOW or str(event.name) == part.name:
            return


def _open(directory: Path) -> Inotify:
    try:
        return Inotify()
    except OSError as error:
        raise file_error("watch", directory, error) from error


def _attach(notifier: Inotify, directory: Path, mask: Mask) -> bool:
    """Put a watch on a directory; False if it is not there."""
    try:
        notifier.add_watch(directory, mask | _SELF)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise file_error("watch", directory, error) from error
    return True
