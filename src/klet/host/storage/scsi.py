"""SCSI disks and device-mapper devices, as sysfs and /dev show them (upstream: volume/util DeviceUtil). It blocks.

Below roots of the caller's choice, so that tests can build the trees. Names in them are the kernel's and udev's, and
are checked all the same: they become parts of paths.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klet.host.errors import HostError, file_error

_DISK: Final = re.compile(r"[a-zA-Z0-9_!.-]{1,64}")
_DM: Final = re.compile(r"dm-[0-9]{1,9}")
_SCSI_HOST: Final = re.compile(r"host[0-9]{1,9}")
_ALL: Final = "- - -"
_MOST_ENTRIES: Final = 65536


class ScsiError(HostError):
    """A disk that cannot be found, flushed or removed."""


class DiskTree:
    """The disks of this machine."""

    def __init__(self, *, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._sys = sys
        self._dev = dev

    def by_path(self, pattern: re.Pattern[str]) -> list[Path]:
        """Return the links to disks by the way to them (`/dev/disk/by-path`) whose whole names match."""
        return self._links("by-path", pattern)

    def by_id(self, pattern: re.Pattern[str]) -> list[Path]:
        """Return the links to disks by what they are (`/dev/disk/by-id`) whose whole names match."""
        return self._links("by-id", pattern)

    def resolve(self, device: str) -> str:
        """Return the device that a link leads to, as a path directly in /dev."""
        found = os.path.realpath(device)
        if not os.path.lexists(found):
            raise ScsiError(f"the device {device} does not exist")
        return found

    def multipath_of(self, device: str) -> str:
        """Return the device-mapper device that a disk belongs to; empty if to none, or if the disk is gone."""
        disk = Path(os.path.realpath(device)).name
        if _DM.fullmatch(disk):
            return str(self._dev / disk)
        if not _DISK.fullmatch(disk):
            return ""
        for entry in _entries(self._sys / "block"):
            if _DM.fullmatch(entry) and os.path.lexists(self._sys / "block" / entry / "slaves" / disk):
                return str(self._dev / entry)
        return ""

    def members_of(self, device: str) -> list[str]:
        """Return the disks that a device-mapper device is made of; none if it is no such device."""
        name = Path(os.path.realpath(device)).name
        if not _DM.fullmatch(name):
            return []
        return [
            str(self._dev / entry)
            for entry in _entries(self._sys / "block" / name / "slaves")
            if _DISK.fullmatch(entry)
        ]

    def is_device_mapper(self, device: str) -> bool:
        return _DM.fullmatch(Path(os.path.realpath(device)).name) is not None

    def rescan_all(self) -> None:
        """Have every SCSI host look for new disks."""
        for entry in _entries(self._sys / "class" / "scsi_host"):
            if _SCSI_HOST.fullmatch(entry):
                _write(self._sys / "class" / "scsi_host" / entry / "scan", _ALL)

    def scan_unit(self, host: int, lun: int) -> None:
        """Have one SCSI host look for one logical unit."""
        _write(self._sys / "class" / "scsi_host" / f"host{host}" / "scan", f"0 0 {lun}")

    def delete(self, device: str) -> None:
        """Make the kernel forget a SCSI disk; one that is gone is fine, one that is in use is an error."""
        found = os.path.realpath(device)
        name = Path(found).name
        if not _DISK.fullmatch(name) or _DM.fullmatch(name):
            raise ScsiError(f"{device} is no SCSI disk")
        place = self._sys / "block" / name / "device" / "delete"
        if place.exists():
            _check_unused(found)
            _write(place, "1")

    def _links(self, kind: str, pattern: re.Pattern[str]) -> list[Path]:
        place = self._dev / "disk" / kind
        return sorted(place / entry for entry in _entries(place) if pattern.fullmatch(entry))


def _entries(directory: Path) -> Iterator[str]:
    """Yield the names in a directory in order; none if it is not there."""
    try:
        with os.scandir(directory) as found:
            names = [entry.name for entry, _ in zip(found, range(_MOST_ENTRIES), strict=False)]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise file_error("list", directory, error) from error
    yield from sorted(names)


def _check_unused(device: str) -> None:
    """Check that no filesystem and no device-mapper device is on a disk: the kernel would take it away from them."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise ScsiError(f"the device {device} is in use") from error


def _write(place: Path, text: str) -> None:
    try:
        with place.open("w") as file:
            file.write(text)
    except OSError as error:
        raise file_error("write", place, error) from error
