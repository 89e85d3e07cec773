"""The machine's mounts, as scratch directories and local volumes need them. It blocks."""

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from klet.errors import KletError
from klet.host.errors import FileError, FileMissing, MountError
from klet.host.files import read_text, scratch_directory
from klet.host.filesystems import filesystem_type, is_mount_root
from klet.host.mountinfo import find_references
from klet.host.mounts import CORRUPTED, bind, list_mounts, mount, restrict_bind, unmount
from klet.volumes.errors import doing
from klet.volumes.scratch import MountedMedium
from klet.volumes.volume_directories import beside, open_volume

logger = logging.getLogger(__name__)

_FIRST_WITH_NOSWAP: Final = (6, 4)


class HostMounter:
    """Mounts on this machine."""

    def mount(self, source: str, target: Path, *, fs_type: str, options: Iterable[str]) -> None:
        with open_volume(target) as found:
            mount(source, Path(f"/proc/self/fd/{found}"), fs_type=fs_type, options=options, shown=target)

    def unmount(self, target: Path, *, force: bool = False) -> bool:
        try:
            with beside(target) as path:
                return unmount(path, force=force, shown=target)
        except FileMissing:
            return False

    def mounted_at(self, path: Path) -> MountedMedium | None:
        if not is_mount_root(path):
            return None
        with doing("look at", path):
            return MountedMedium(filesystem_type(path), os.statvfs(path).f_bsize)

    def bind(self, source: int, target: Path) -> None:
        with open_volume(target) as found:
            bind(Path(f"/proc/self/fd/{source}"), Path(f"/proc/self/fd/{found}"), shown=target)

    def restrict(self, target: Path, options: Iterable[str]) -> None:
        with open_volume(target) as found:
            restrict_bind(Path(f"/proc/self/fd/{found}"), options)

    def is_bound(self, path: Path) -> bool:
        try:
            return is_mount_root(path)
        except FileError as error:
            # Only a mount can have lost what is behind it. It can still be unmounted.
            if error.errno in CORRUPTED:
                return True
            raise

    def shown_at(self, source: int) -> tuple[str, ...]:
        with doing("look at", Path(f"/proc/self/fd/{source}")):
            path = str(Path(f"/proc/self/fd/{source}").readlink())
        return find_references(list_mounts(), path)


def find_noswap(root: Path, *, in_user_namespace: bool) -> bool:
    """Return whether tmpfs volumes can be kept out of swap. If only a try can show that, it is made below a root."""
    known = has_noswap(read_text(Path("/proc/sys/kernel/osrelease")), in_user_namespace=in_user_namespace)
    if known is not None:
        return known
    try:
        return _try_noswap(root)
    except KletError as error:
        # A node without the option is a node all the same: only its volumes may be swapped out.
        logger.warning("Cannot try the tmpfs option noswap: taken as not supported", extra={"error": str(error)})
        return False


def has_noswap(release: str, *, in_user_namespace: bool) -> bool | None:
    """Return whether the kernel knows the option, by its release and the user namespace; None if undecided."""
    if in_user_namespace:
        return False  # the kernel refuses it to those who are not root of the machine
    numbers = re.match(r"(\d+)\.(\d+)", release)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _FIRST_WITH_NOSWAP
    return True if is_new else None


def _try_noswap(root: Path) -> bool:
    with doing("try a mount below", root), scratch_directory(root, prefix="tmpfs-noswap-test-") as path:
        try:
            mount("tmpfs", path, fs_type="tmpfs", options=("noswap",))
        except MountError:
            return False
        unmount(path)
        return True
