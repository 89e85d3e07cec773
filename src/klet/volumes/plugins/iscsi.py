"""iscsi: a disk of a target on the network, mounted for all pods and bound for each; or given to them as a device."""

from collections.abc import Mapping
from typing import Final

from klet.aio.threads import Threads
from klet.api.volume import Volume
from klet.errors import KletError
from klet.host.beneath import make_directories, read_end, unlink_below, write_in_place
from klet.host.errors import FileMissing
from klet.model.roles import ObjectReader
from klet.volumes.device_mounts import DeviceMounts
from klet.volumes.device_places import DevicePlace
from klet.volumes.errors import VolumeSetupError
from klet.volumes.iscsi.attacher import IscsiAttacher
from klet.volumes.iscsi.disk import (
    LONGEST_RECORD,
    NO_PORT,
    RECORD,
    IscsiDisk,
    decode_record,
    device_name,
    disk_of_place,
    encode_record,
    has_port,
    iscsi_disk,
    volume_of_place,
    without_port,
)
from klet.volumes.names import Layout
from klet.volumes.plugins.base import StageRequest
from klet.volumes.plugins.disk import DiskPlugin, DiskSource
from klet.volumes.spec import VolumeSpec

_RECORD_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o750


class IscsiPlugin(DiskPlugin):
    """Logs in to the target of the disk, and out of it after its last disk.

    What is needed for that is kept in the directory that the disk is then mounted on, so it can be read when the disk
    has been unmounted.
    """

    name = "kubernetes.io/iscsi"
    depth = 2

    def __init__(
        self, *, layout: Layout, mounts: DeviceMounts, threads: Threads, attacher: IscsiAttacher, objects: ObjectReader
    ) -> None:
        super().__init__(layout=layout, mounts=mounts, threads=threads)
        self._attacher = attacher
        self._objects = objects

    def disk_source(self, spec: VolumeSpec) -> DiskSource | None:
        if spec.persistent is not None:
            claimed = spec.persistent.spec.iscsi
            return None if claimed is None else DiskSource(claimed.fs_type, spec.read_only)
        inline = spec.volume.iscsi
        return None if inline is None else DiskSource(inline.fs_type, inline.read_only)

    def place_names(self, spec: VolumeSpec) -> tuple[str, ...]:
        return iscsi_disk(spec, namespace="").place

    def volume_at(self, volume: str, names: tuple[str, ...]) -> Volume:
        return volume_of_place(volume, *names[-2:])

    def read_volume(self, volume: str, place: DevicePlace) -> Volume:
        found = super().read_volume(volume, place)
        return without_port(found) if _is_without_port(place) else found

    def device_name(self, spec: VolumeSpec) -> str:
        return device_name(spec)

    async def wait_for_attach(self, request: StageRequest) -> str:
        disk = iscsi_disk(request.spec, namespace=request.pod.metadata.namespace)
        secret = await self._read_secret(disk)
        place = self.place(request.spec, is_block=request.spec.is_block)
        if not await self._mounts.is_mounted(place):
            # Before the login: a run that is killed after it must be able to log out.
            await self._mounts.make(place)
            await self._threads.run(_write_record, place, disk)
        # Beside it, where the mount does not hide it: after a restart the disk has the same name as in the API.
        await self._threads.run(_write_port, place, has_port=has_port(request.spec))
        return await self._attacher.attach(disk, secret)

    async def remove_device(self, place: DevicePlace) -> None:
        if await self._mounts.is_mounted(place):
            raise VolumeSetupError(f"iscsi: {place.path} is still mounted")
        disk = await self._threads.run(_read_record, place)
        await self._attacher.detach(disk or disk_of_place(*place.names[-2:]))
        await self._threads.run(unlink_below, place.plugins, *place.names, RECORD)
        await self._threads.run(_write_port, place, has_port=True)

    async def _read_secret(self, disk: IscsiDisk) -> Mapping[str, bytes]:
        """Return the CHAP settings, read at this moment: the target may have new ones."""
        if not disk.chap_discovery and not disk.chap_session:
            return {}
        if disk.secret is None or not disk.secret.name:
            raise VolumeSetupError("CHAP enabled but no secret is named")
        try:
            found = await self._objects.secret(disk.secret.namespace, disk.secret.name)
        except KletError as error:
            raise VolumeSetupError(
                f"couldn't get secret {disk.secret.namespace}/{disk.secret.name} error: {error}"
            ) from error
        return found.data


def _write_record(place: DevicePlace, disk: IscsiDisk) -> None:
    write_in_place(place.plugins, *place.names, RECORD, data=encode_record(disk), mode=_RECORD_MODE)


def _no_port(place: DevicePlace) -> tuple[str, ...]:
    return (*place.names[:-1], f"{place.names[-1]}{NO_PORT}")


def _write_port(place: DevicePlace, *, has_port: bool) -> None:
    """Note whether the portal is named with its port."""
    if has_port:
        unlink_below(place.plugins, *_no_port(place))
    else:
        make_directories(place.plugins, *place.names[:-1], mode=_DIRECTORY_MODE)
        write_in_place(place.plugins, *_no_port(place), data=b"", mode=_RECORD_MODE)


def _is_without_port(place: DevicePlace) -> bool:
    try:
        read_end(place.plugins, *_no_port(place), limit=1)
    except FileMissing:
        return False
    return True


def _read_record(place: DevicePlace) -> IscsiDisk | None:
    """Return what was written; None if there is nothing, or it is of another disk than its directory."""
    try:
        data = read_end(place.plugins, *place.names, RECORD, limit=LONGEST_RECORD)
    except FileMissing:
        return None
    disk = decode_record(data)
    return disk if disk is not None and disk.place[1:] == place.names[-1:] else None
