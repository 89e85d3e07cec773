"""The machine's mounts, as scratch directories need them. It blocks."""

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from klet.host.errors import FileMissing, MountError
from klet.host.files import read_text
from klet.host.filesystems import filesystem_type, is_mount_root
from klet.host.mounts import mount, unmount
from klet.volumes.errors import doing
from klet.volumes.scratch import MountedMedium
from klet.volumes.volume_directories import beside, open_volume

_FIRST_WITH_NOSWAP: Final = (6, 4)
_ALL_IDS: Final = ("0", "0", "4294967295")


class HostMounter:
    """Mounts on this machine."""

    def mount(self, source: str, target: Path, *, fs_type: str, options: Iterable[str]) -> None:
        with open_volume(target) as found:
            mount(source, Path(f"/proc/self/fd/{found}"), fs_type=fs_type, options=options, shown=target)

    def unmount(self, target: Path) -> bool:
        try:
            with beside(target) as path:
                return unmount(path, shown=target)
        except FileMissing:
            return False

    def mounted_at(self, path: Path) -> MountedMedium | None:
        if not is_mount_root(path):
            return None
        with doing("look at", path):
            return MountedMedium(filesystem_type(path), os.statvfs(path).f_bsize)


def find_noswap(root: Path) -> bool:
    """Return whether tmpfs volumes can be kept out of swap. If only a try can show that, it is made below a root."""
    known = has_noswap(read_text(Path("/proc/sys/kernel/osrelease")), read_text(Path("/proc/self/uid_map")))
    if known is not None:
        return known
    with doing("try a mount below", root), tempfile.TemporaryDirectory(prefix="tmpfs-noswap-test-", dir=root) as path:
        try:
            mount("tmpfs", Path(path), fs_type="tmpfs", options=("noswap",))
        except MountError:
            return False
        unmount(Path(path))
        return True


def has_noswap(release: str, uid_map: str) -> bool | None:
    """Return whether the kernel knows the option, by its release and the user namespace; None if undecided."""
    if tuple(uid_map.split()) != _ALL_IDS:
        return False
    numbers = re.match(r"(\d+)\.(\d+)", release)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _FIRST_WITH_NOSWAP
    return True if is_new else None
