"""Fibre Channel disks: their names, finding and removing them (upstream: pkg/volume/fc)."""

import logging
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.volume import Volume
from klet.api.volume_intree import FCVolumeSource
from klet.errors import KletError
from klet.host.errors import ProcessError
from klet.host.files import is_plain_name
from klet.host.processes import Completed
from klet.host.storage.scsi import DiskTree, ScsiError
from klet.host.storage.tools import QUICK, exit_text, said
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import go_list
from klet.volumes.spec import VolumeSpec

logger = logging.getLogger(__name__)

REMOVE_EVERY: Final = timedelta(seconds=10)
REMOVE_WITHIN: Final = timedelta(minutes=2)
_LUN: Final = re.compile(r"[0-9]{1,10}")


class FcDisk(Struct, frozen=True, kw_only=True):
    """A logical unit behind ports (WWNs), or a disk by what it is (WWIDs)."""

    wwns: tuple[str, ...] = ()
    lun: int | None = None
    wwids: tuple[str, ...] = ()

    @property
    def is_by_port(self) -> bool:
        return bool(self.wwns) and self.lun is not None

    @property
    def place(self) -> str:
        """Return the name of its directory below that of the plugin."""
        return f"{'-'.join(self.wwns)}-lun-{self.lun}" if self.is_by_port else "-".join(self.wwids)

    @property
    def name(self) -> str:
        """Return what distinguishes it from all others on the node."""
        return f"{go_list(self.wwns)}:{self.lun}" if self.is_by_port else go_list(self.wwids)

    @property
    def by_path(self) -> tuple[re.Pattern[str], ...]:
        """Return how udev calls it in `/dev/disk/by-path`, one for each port."""
        if not self.is_by_port:
            return ()
        return tuple(re.compile(rf"(?:pci-.*-fc|fc)-0x{re.escape(wwn)}-lun-{self.lun}") for wwn in self.wwns)

    @property
    def by_id(self) -> tuple[re.Pattern[str], ...]:
        return () if self.is_by_port else tuple(re.compile(re.escape(f"scsi-{wwid}")) for wwid in self.wwids)


def fc_source(spec: VolumeSpec) -> FCVolumeSource | None:
    return spec.volume.fc if spec.persistent is None else spec.persistent.spec.fc


def fc_disk(spec: VolumeSpec) -> FcDisk:
    """Return the disk of a volume; raises VolumeSetupError for names that cannot be parts of a path."""
    source = fc_source(spec)
    if source is None:
        raise VolumeSetupError(f"Spec {spec.name} does not reference a FibreChannel volume type")
    # udev writes a blank of an identifier as an underscore.
    wwids = tuple(wwid.replace(" ", "_") for wwid in source.wwids)
    disk = FcDisk(wwns=source.target_wwns, lun=source.lun, wwids=wwids)
    if not disk.is_by_port and not disk.wwids:
        raise VolumeSetupError("fc: no fc disk information found. failed to make a new mounter")
    for name in (*disk.wwns, *disk.wwids, disk.place):
        if not is_plain_name(name) or not name.isprintable():
            raise VolumeSetupError(f"{name[:255]!r} cannot be part of the name of a Fibre Channel disk")
    if disk.lun is not None and disk.lun < 0:
        raise VolumeSetupError(f"{disk.lun} is no logical unit")
    return disk


def volume_of_place(volume: str, place: str) -> Volume:
    """Return the volume that the directory `<wwn>-<wwn>-lun-<n>` or `<wwid>-<wwid>` is of."""
    parts = tuple(place.split("-"))
    if len(parts) > 1 and parts[-2] == "lun":
        if len(parts) == 2:
            raise VolumeSetupError(f"no wwn in: {place[:255]}")
        if not _LUN.fullmatch(parts[-1]):
            raise VolumeSetupError(f"{place[:255]} is no place of a Fibre Channel disk")
        return Volume(name=volume, fc=FCVolumeSource(target_wwns=parts[:-2], lun=int(parts[-1])))
    return Volume(name=volume, fc=FCVolumeSource(wwids=parts))


class FlushTools(Protocol):
    """Runs tools of the machine."""

    async def run(self, name: str, *arguments: str, timeout: timedelta = QUICK) -> Completed: ...


class FcDisks:
    """Finds disks that the fabric shows this machine, and removes them again."""

    def __init__(self, *, tools: FlushTools, disks: DiskTree, threads: Threads, clock: Clock) -> None:
        self._tools = tools
        self._disks = disks
        self._threads = threads
        self._clock = clock

    async def find(self, disk: FcDisk) -> str:
        """Return the path of a disk, that of the multipath device if there is one; raises VolumeSetupError."""
        found = await self._threads.run(self._find, disk)
        if not found:
            raise VolumeSetupError("no fc disk found")
        return found

    async def find_present(self, disk: FcDisk) -> str:
        """Return the path of a disk without looking for new ones; empty if there is none."""
        path, joined = await self._threads.run(self._look, disk)
        return joined or path

    async def remove(self, device: str) -> None:
        """Make the kernel forget an unmounted disk and all ways to it. While one is in use, that is tried again."""
        try:
            found = await self._threads.run(self._disks.resolve, device)
        except ScsiError:
            return  # it is gone
        steps: list[Callable[[], Awaitable[None]]] = []
        members = await self._threads.run(self._disks.members_of, found)
        if await self._threads.run(self._disks.is_device_mapper, found):
            steps.append(partial(self._run, "multipath", "-f", found))
        steps += [partial(self._remove_path, path) for path in members or [found]]
        give_up = self._clock.monotonic() + REMOVE_WITHIN.total_seconds()
        while steps:
            try:
                await steps[0]()
            except KletError as error:
                if self._clock.monotonic() >= give_up:
                    raise
                logger.info("A disk is still in use", extra={"volume": device, "error": str(error)})
                await self._clock.sleep(REMOVE_EVERY)
            else:
                del steps[0]

    async def _remove_path(self, path: str) -> None:
        await self._run("blockdev", "--flushbufs", path)
        await self._threads.run(self._disks.delete, path)

    def _find(self, disk: FcDisk) -> str:
        path, joined = self._look(disk)
        if not joined:
            # A disk may have come since, or another way to it, which makes a multipath device of it.
            self._disks.rescan_all()
            path, joined = self._look(disk)
        return joined or path

    def _look(self, disk: FcDisk) -> tuple[str, str]:
        links = [link for pattern in disk.by_path for link in self._disks.by_path(pattern)]
        links += [link for pattern in disk.by_id for link in self._disks.by_id(pattern)]
        path = ""
        for link in links:
            try:
                path = self._disks.resolve(str(link))
            except KletError as error:
                logger.debug("A link to a disk leads nowhere", extra={"volume": str(link), "error": str(error)})
                continue
            if joined := self._disks.multipath_of(path):
                return path, joined
        return path, ""

    async def _run(self, name: str, *arguments: str) -> None:
        try:
            done = await self._tools.run(name, *arguments)
        except ProcessError as error:
            raise VolumeSetupError(f"fc: {error}") from error
        if done.returncode != 0:
            raise VolumeSetupError(f"fc: {name} {' '.join(arguments)} failed: {exit_text(done)}: {said(done)}")
