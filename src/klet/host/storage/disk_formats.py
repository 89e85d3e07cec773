"""Filesystems on disks: which one there is, making, checking and growing one (upstream: SafeFormatAndMount, ResizeFs).

DiskFormatError
├── DiskNotFormatted   nothing is on it, and it may only be read
└── WrongFilesystem    it has another filesystem than is asked for, and that does not mount
"""

import logging
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.errors import HostError, ProcessError
from klet.host.storage.mount_tool import MountTool, MountToolFailed
from klet.host.storage.tools import WHOLE_DISK, HostTools, exit_text, said

logger = logging.getLogger(__name__)

DEFAULT: Final = "ext4"
UNKNOWN: Final = "unknown data, probably partitions"
_NO_FORMAT: Final = 2
"""The exit code of blkid(8) for a disk on which it finds nothing."""
_CORRECTED, _UNCORRECTED = 1, 4
"""Exit codes of fsck(8)."""
_LONGEST_NAME: Final = 64


class DiskFormatError(HostError):
    """A disk cannot be formatted, checked, mounted or grown."""


class DiskNotFormatted(DiskFormatError):
    """There is no filesystem on it, and it may only be read."""


class WrongFilesystem(DiskFormatError):
    """The disk has another filesystem than is asked for, and that does not mount."""


class DiskMount(Struct, frozen=True, kw_only=True):
    """A disk that is to be mounted, and formatted before if nothing is on it."""

    disk: str
    target: Path
    fs_type: str = ""
    options: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        return self.fs_type or DEFAULT

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options


def parse_blkid(output: bytes) -> str:
    """Return the filesystem of a disk from what `blkid -o export` prints; empty if there is none."""
    fields = {}
    for line in output.decode(errors="replace").splitlines():
        name, separator, value = line.partition("=")
        if separator:
            fields[name] = value
    # A table of partitions is somebody's data, whatever else it looks like.
    return UNKNOWN if fields.get("PTTYPE") else fields.get("TYPE", "")


def build_format_command(disk: str, fs_type: str) -> tuple[str, ...]:
    """Return the command that makes a filesystem; raises DiskFormatError for a name that no program can have."""
    if not fs_type.replace("-", "").replace(".", "").replace("_", "").isalnum() or len(fs_type) > _LONGEST_NAME:
        raise DiskFormatError(f"{fs_type[:_LONGEST_NAME]!r} is no name of a filesystem")
    options = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0"), "xfs": ("-f",)}.get(fs_type, ())
    return (f"mkfs.{fs_type}", *options, disk)


def build_grow_command(fs_type: str, *, disk: str, mounted_at: str) -> tuple[str, ...] | None:
    """Return the command that grows a mounted filesystem to its disk; None if none can."""
    match fs_type:
        case "ext3" | "ext4":
            return ("resize2fs", disk)
        case "xfs":
            return ("xfs_growfs", "-d", mounted_at)
        case "btrfs":
            return ("btrfs", "filesystem", "resize", "max", mounted_at)
        case _:
            return None


class DiskFormats:
    """Looks at disks, and formats, checks, mounts and grows them."""

    def __init__(self, *, tools: HostTools, mounts: MountTool) -> None:
        self._tools = tools
        self._mounts = mounts

    async def find(self, disk: str) -> str:
        """Return the filesystem of a disk; empty if there is none."""
        try:
            done = await self._tools.run("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk)
        except ProcessError as error:
            raise DiskFormatError(f"failed to get disk format of disk {disk}: {error}") from error
        if done.returncode == _NO_FORMAT:
            return ""
        if done.returncode != 0:
            raise DiskFormatError(f"failed to get disk format of disk {disk}: {exit_text(done)}: {said(done)}")
        return parse_blkid(done.stdout)

    async def format_and_mount(self, request: DiskMount) -> None:
        """Mount a disk, after it was formatted if it is empty, or checked if it is not."""
        found = await self.find(request.disk)
        if not found:
            await self._format(request)
        elif not request.is_read_only:
            await self._check(request.disk)
        options = (*request.options, "defaults")
        try:
            await self._mounts.mount(request.disk, request.target, fs_type=request.wanted, options=options)
        except MountToolFailed as error:
            if found and found != request.wanted:
                raise WrongFilesystem(
                    f'failed to mount the volume as "{request.wanted}", it already contains {found}. '
                    f"Mount error: {error}"
                ) from error
            raise DiskFormatError(str(error)) from error

    async def grow(self, disk: str, mounted_at: str) -> None:
        """Grow the filesystem of a disk, which is mounted at a path, to the size of the disk."""
        found = await self.find(disk)
        if not found:
            raise DiskFormatError(f"ResizeFS.Resize - Could not determine the filesystem of {disk}: it has none")
        command = build_grow_command(found, disk=disk, mounted_at=mounted_at)
        if command is None:
            raise DiskFormatError(
                f"ResizeFS.Resize - resize of format {found} is not supported for device {disk} mounted at {mounted_at}"
            )
        try:
            done = await self._tools.run(*command, timeout=WHOLE_DISK)
        except ProcessError as error:
            raise DiskFormatError(f"resize of device {disk} failed: {error}") from error
        if done.returncode != 0:
            raise DiskFormatError(
                f"resize of device {disk} failed: {exit_text(done)}. {command[0]} output: {said(done)}"
            )

    async def _format(self, request: DiskMount) -> None:
        if request.is_read_only:
            raise DiskNotFormatted(
                f"cannot mount unformatted disk {request.disk} as we are manipulating it in read-only mode"
            )
        command = build_format_command(request.disk, request.wanted)
        shown = f'type:("{request.wanted}") target:("{request.target}") options:("{" ".join(request.options)}")'
        try:
            done = await self._tools.run(*command, timeout=WHOLE_DISK)
        except ProcessError as error:
            raise DiskFormatError(f'format of disk "{request.disk}" failed: {shown} errcode:({error})') from error
        if done.returncode != 0:
            raise DiskFormatError(
                f'format of disk "{request.disk}" failed: {shown} errcode:({exit_text(done)}) output:({said(done)}) '
            )
        logger.info("Disk formatted", extra={"volume": request.disk})

    async def _check(self, disk: str) -> None:
        try:
            done = await self._tools.run("fsck", "-a", disk, timeout=WHOLE_DISK)
        except ProcessError as error:
            logger.warning("Cannot check a disk: it is mounted unchecked", extra={"volume": disk, "error": str(error)})
            return
        if done.returncode == _UNCORRECTED:
            raise DiskFormatError(f"'fsck' found errors on device {disk} but could not correct them: {said(done)}")
        if done.returncode == _CORRECTED:
            logger.info("Errors on a disk corrected by fsck", extra={"volume": disk})
        elif done.returncode != 0:
            logger.info("fsck on a disk has failed", extra={"volume": disk, "error": exit_text(done)})
