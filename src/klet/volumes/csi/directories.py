"""The directories of CSI volumes and their `vol_data.json`, by descriptor below the agent's root. It blocks.

Nothing is removed but the agent's own files and empty directories, and never one that something is mounted on.
"""

import os
from pathlib import Path
from typing import Final

from klet.host.beneath import (
    list_directory,
    make_directories,
    open_directory,
    open_regular_in,
    remove_empty_below,
    unlink_below,
)
from klet.host.errors import FileMissing, file_error
from klet.host.filesystems import is_mount_root
from klet.volumes.csi.places import DATA_FILE, Place, device_name
from klet.volumes.csi.vol_data import (
    LONGEST,
    BadVolumeData,
    VolumeData,
    check_named,
    decode_volume_data,
    encode_volume_data,
)
from klet.volumes.errors import VolumeSetupError

DIRECTORY_MODE: Final = 0o750
_FRESH: Final = f"{DATA_FILE}.new"
"""What a file is until it is complete. It replaces the other at once: an agent that is killed never leaves half a file,
without which the volume could not be taken down."""


class StillMounted(VolumeSetupError):
    """Something is mounted where nothing should be any more."""


def make_place(place: Place) -> None:
    """Make a directory, and those above it. One that is there stays as it is, also if something is mounted on it."""
    make_directories(place.root, *place.names, mode=DIRECTORY_MODE)


def exists(place: Place) -> bool:
    try:
        with open_directory(place.root, *place.parent.names) as parent:
            os.lstat(place.names[-1], dir_fd=parent)
    except (FileMissing, FileNotFoundError):
        return False
    except OSError as error:
        raise file_error("look at", place.path, error) from error
    return True


def is_mounted(place: Place) -> bool:
    """Return whether something is mounted exactly there; False if nothing is there at all."""
    try:
        with open_directory(place.root, *place.parent.names) as parent:
            return is_mount_root(Path(f"/proc/self/fd/{parent}/{place.names[-1]}"))
    except FileMissing:
        return False


def write_data(directory: Place, data: VolumeData) -> None:
    """Write the file of a volume, at once as a whole; one that says the same is left alone.

    StillMounted if it says that another volume is there, which could not be taken down without the file.
    """
    content = encode_volume_data(data)
    shown = directory.path / DATA_FILE
    with open_directory(directory.root, *directory.names, action="write to", one_mount=True) as found:
        before = _read(found, shown)
        if before == content:
            return
        if before is not None and (other := _other_volume(before, data)) is not None:
            raise StillMounted(f"{directory.path} is of {other}, which has not been taken down")
        try:
            _unlink(found, _FRESH)
            fresh = open_regular_in(found, _FRESH, shown, flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(fresh, "wb") as file:
                os.fchmod(fresh, 0o644)
                file.write(content)
                file.flush()
                os.fsync(fresh)
            os.rename(_FRESH, DATA_FILE, src_dir_fd=found, dst_dir_fd=found)
        except OSError as error:
            raise file_error("write", shown, error) from error


def read_data(directory: Place) -> VolumeData | None:
    """Return what the file of a volume says; None if there is no file. One that says nothing is BadVolumeData."""
    try:
        with open_directory(directory.root, *directory.names) as found:
            content = _read(found, directory.path / DATA_FILE)
    except FileMissing:
        return None
    return None if content is None else decode_volume_data(content)


def remove_mounted(place: Place) -> None:
    """Remove the directory that a driver showed a volume at, the volume's file, and the directory of both.

    What is gone is fine. StillMounted if something is mounted there: then nothing is removed.
    """
    if is_mounted(place):
        raise StillMounted(f"{place.path} is still a mount point")
    remove_empty(place)
    remove_data(place.parent)
    remove_empty(place.parent)


def remove_data(directory: Place) -> None:
    for name in (_FRESH, DATA_FILE):
        unlink_below(directory.root, *directory.names, name)


def remove_empty(place: Place) -> None:
    """Remove an empty directory; one that is gone is fine."""
    remove_empty_below(place.root, *place.names)


def list_places(place: Place) -> list[Place]:
    """Return the directories in a directory; none if it is not there."""
    entries = list_directory(place.root, *place.names)
    return [place.below(entry.name) for entry in entries if entry.is_directory]


def list_below(place: Place) -> list[Place]:
    """Return all entries of a directory; none if it is not there."""
    return [place.below(entry.name) for entry in list_directory(place.root, *place.names)]


def _read(directory: int, shown: Path) -> bytes | None:
    try:
        found = open_regular_in(directory, DATA_FILE, shown)
    except FileMissing:
        return None
    with open(found, "rb") as file:
        try:
            return file.read(LONGEST + 1)
        except OSError as error:
            raise file_error("read", shown, error) from error


def _other_volume(content: bytes, data: VolumeData) -> str | None:
    """Return which volume a file is of, if that is not the one of the data; None if it says of none."""
    try:
        before = decode_volume_data(content)
        check_named(before)
    except BadVolumeData:
        return None
    old, new = (device_name(each.driver_name, each.volume_handle) for each in (before, data))
    return old if old != new else None


def _unlink(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
