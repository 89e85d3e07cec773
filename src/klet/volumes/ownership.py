"""Makes the files of a volume accessible to the group of a pod (`fsGroup`; upstream: VolumeOwnership). It blocks.

Pods may change a volume meanwhile. So everything is done by descriptor: swapping a file for a link has no effect.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from klet.volumes.errors import doing
from klet.volumes.volume_directories import DEPTH, open_volume

logger = logging.getLogger(__name__)

ON_ROOT_MISMATCH: Final = "OnRootMismatch"
_READ_WRITE, _READ_ONLY, _EXECUTE = 0o660, 0o440, 0o110
_ACTION: Final = "change the owner of"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Ownership(Struct, frozen=True):
    """What a group gets."""

    group: int
    read_only: bool = False
    policy: str | None = None

    def mode_of(self, found: os.stat_result) -> int:
        """Return the mode afterwards. Bits are added, never taken away."""
        mode = stat.S_IMODE(found.st_mode) | (_READ_ONLY if self.read_only else _READ_WRITE)
        return mode | _EXECUTE | stat.S_ISGID if stat.S_ISDIR(found.st_mode) else mode

    def is_settled(self, root: os.stat_result) -> bool:
        """Return whether a volume can be left alone: only its root counts, and that is as it should be."""
        return (
            self.policy == ON_ROOT_MISMATCH
            and root.st_gid == self.group
            and stat.S_ISDIR(root.st_mode)
            and self.mode_of(root) == stat.S_IMODE(root.st_mode)
        )


class WalkProgress(Struct):
    """How far a walk is; read from another thread."""

    files: int = 0


def change_ownership(root: Path, wanted: Ownership, depth: int = DEPTH, progress: WalkProgress | None = None) -> None:
    """Give everything to the group, children before their directory. A file that cannot be changed is logged.

    `depth` is how many of the last names of the path are reached without following a link.
    """
    with doing(_ACTION, root), open_volume(root, action=_ACTION, depth=depth) as found:
        top = os.dup(found)
        _Walk(wanted, [_Frame(top)], progress or WalkProgress()).run(root)


class _Frame(Struct):
    directory: int
    names: list[str] = field(default_factory=list)

    def look(self) -> None:
        directory: int = self.directory
        self.names = os.listdir(directory)


class _Walk(Struct):
    """One pass. Without recursion: containers that write there choose the depth."""

    wanted: Ownership
    frames: list[_Frame]
    progress: WalkProgress

    def run(self, root: Path) -> None:
        try:
            if self.wanted.is_settled(os.fstat(self.frames[0].directory)):
                return
            self.frames[0].look()
            while self.frames:
                frame = self.frames[-1]
                if frame.names:
                    self._enter(frame.directory, frame.names.pop())
                else:
                    self._change_directory(frame.directory, root)
                    os.close(self.frames.pop().directory)
        finally:
            for frame in self.frames:
                os.close(frame.directory)

    def _enter(self, parent: int, name: str) -> None:
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
                below = os.open(name, _DIRECTORY, dir_fd=parent)
                self.frames.append(_Frame(below))
                self.frames[-1].look()
            else:
                self._change_file(parent, name)
        except FileNotFoundError:
            logger.debug("A file went away while its owner was changed", extra={"file": name})

    def _change_file(self, parent: int, name: str) -> None:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            before = os.fstat(found)
            if stat.S_ISLNK(before.st_mode):
                # The link itself, by name: there is no call that takes its descriptor.
                os.chown(name, -1, self.wanted.group, dir_fd=parent, follow_symlinks=False)
                return
            self._change(Path(f"/proc/self/fd/{found}"), before, name)
        except PermissionError as error:
            logger.warning("Owner not changed", extra={"file": name, "error": str(error)})
        finally:
            os.close(found)

    def _change_directory(self, directory: int, root: Path) -> None:
        self._change(Path(f"/proc/self/fd/{directory}"), os.fstat(directory), str(root))

    def _change(self, path: Path, before: os.stat_result, shown: str) -> None:
        self.progress.files += 1
        try:
            os.chown(path, -1, self.wanted.group)
            path.chmod(self.wanted.mode_of(before))
        except OSError as error:
            logger.warning("Owner or mode not changed", extra={"file": shown, "error": str(error)})
