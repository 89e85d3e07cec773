"""What the volumes of the test driver are: bind mounts and loop devices, or files and directories that stand for them.

A volume is a directory `<root>/<id>`, for block volumes a file `<root>/<id>.img`. All functions block.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final, Protocol

from klet.host.filesystems import is_mount_root
from klet.host.mounts import bind, unmount

IMAGE_BYTES: Final = 4 * 1024 * 1024
_NOTE: Final = ".published"


class VolumeBacking(Protocol):
    """Makes volumes visible and invisible at paths. Everything may be done twice."""

    def content(self, volume: str) -> Path:
        """Return the directory that is the volume."""
        ...

    def show(self, volume: str, target: Path, *, read_only: bool) -> None:
        """Show the volume at a path, which is made if it is not there; the directory above must be there."""
        ...

    def hide(self, target: Path) -> None:
        """Undo `show`, and remove the path."""
        ...

    def cover(self, volume: str, target: Path) -> None:
        """Show the volume at a directory that the caller has made."""
        ...

    def uncover(self, target: Path) -> None: ...

    def show_device(self, volume: str, target: Path) -> None:
        """Make the volume's device at a path, a file that is made if it is not there."""
        ...

    def hide_device(self, volume: str, target: Path) -> None: ...

    def resize(self, volume: str, size: int) -> None: ...


class PlainBacking:
    """No mounts: a directory with a note in it stands for one. Needs no root."""

    def __init__(self, *, root: Path) -> None:
        self._root = root

    def content(self, volume: str) -> Path:
        return _made(self._root / _safe(volume))

    def show(self, volume: str, target: Path, *, read_only: bool) -> None:
        target.mkdir(exist_ok=True)
        (target / _NOTE).write_text(f"{volume} {'ro' if read_only else 'rw'}")

    def hide(self, target: Path) -> None:
        if target.is_dir():
            (target / _NOTE).unlink(missing_ok=True)
            target.rmdir()

    def cover(self, volume: str, target: Path) -> None:
        (target / _NOTE).write_text(volume)

    def uncover(self, target: Path) -> None:
        (target / _NOTE).unlink(missing_ok=True)

    def show_device(self, volume: str, target: Path) -> None:
        target.write_text(volume)

    def hide_device(self, volume: str, target: Path) -> None:  # noqa: ARG002 - there is no device
        target.unlink(missing_ok=True)

    def resize(self, volume: str, size: int) -> None:
        pass


class MountBacking:
    """Bind mounts and loop devices of this machine. Needs root."""

    def __init__(self, *, root: Path) -> None:
        self._root = root

    def content(self, volume: str) -> Path:
        return _made(self._root / _safe(volume))

    def show(self, volume: str, target: Path, *, read_only: bool) -> None:
        target.mkdir(exist_ok=True)
        if not is_mount_root(target):
            bind(self.content(volume), target, options=("ro",) if read_only else ())

    def hide(self, target: Path) -> None:
        if target.is_dir():
            self.uncover(target)
            target.rmdir()

    def cover(self, volume: str, target: Path) -> None:
        if not is_mount_root(target):
            bind(self.content(volume), target)

    def uncover(self, target: Path) -> None:
        if target.exists():
            unmount(target)

    def show_device(self, volume: str, target: Path) -> None:
        image = self._image(volume)
        device = _loop_of(image) or _losetup("--find", "--show", str(image))
        target.touch()
        if not is_mount_root(target):
            bind(Path(device), target)

    def hide_device(self, volume: str, target: Path) -> None:
        if target.exists():
            unmount(target)
            target.unlink()
        if device := _loop_of(self._image(volume)):
            _losetup("--detach", device)

    def resize(self, volume: str, size: int) -> None:
        image = self._root / f"{_safe(volume)}.img"
        if image.exists():
            os.truncate(image, size)
            if device := _loop_of(image):
                _losetup("--set-capacity", device)

    def _image(self, volume: str) -> Path:
        image = _made(self._root) / f"{_safe(volume)}.img"
        if not image.exists():
            image.touch()
            os.truncate(image, IMAGE_BYTES)
        return image


def _safe(volume: str) -> str:
    """Return a volume's name as that of a file."""
    plain = volume.isascii() and volume.replace("-", "").replace("_", "").isalnum() and len(volume) < 100
    return volume if plain else hashlib.sha256(volume.encode()).hexdigest()


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _loop_of(image: Path) -> str:
    return _losetup("--associated", str(image)).partition(":")[0]


def _losetup(*arguments: str) -> str:
    done = subprocess.run(["losetup", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()
