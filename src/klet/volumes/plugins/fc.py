"""fc: a disk of a Fibre Channel fabric, mounted for all pods and bound for each; or given to them as a device."""

from klet.aio.threads import Threads
from klet.api.volume import Volume
from klet.errors import KletError
from klet.volumes.device_mounts import DeviceMounts
from klet.volumes.device_places import DevicePlace
from klet.volumes.errors import VolumeSetupError
from klet.volumes.fc import FcDisks, fc_disk, fc_source, volume_of_place
from klet.volumes.names import Layout
from klet.volumes.plugins.base import StageRequest
from klet.volumes.plugins.disk import DiskPlugin, DiskSource
from klet.volumes.spec import VolumeSpec


class FcPlugin(DiskPlugin):
    """Finds the disk among those of the fabric, and makes the kernel forget it after the last pod."""

    name = "kubernetes.io/fc"
    depth = 1

    def __init__(self, *, layout: Layout, mounts: DeviceMounts, threads: Threads, disks: FcDisks) -> None:
        super().__init__(layout=layout, mounts=mounts, threads=threads)
        self._disks = disks

    def disk_source(self, spec: VolumeSpec) -> DiskSource | None:
        source = fc_source(spec)
        if source is None:
            return None
        return DiskSource(source.fs_type, source.read_only if spec.persistent is None else spec.read_only)

    def place_names(self, spec: VolumeSpec) -> tuple[str, ...]:
        return (fc_disk(spec).place,)

    def volume_at(self, volume: str, names: tuple[str, ...]) -> Volume:
        return volume_of_place(volume, names[-1])

    def device_name(self, spec: VolumeSpec) -> str:
        return fc_disk(spec).name

    async def wait_for_attach(self, request: StageRequest) -> str:
        return await self._disks.find(fc_disk(request.spec))

    async def remove_device(self, place: DevicePlace) -> None:
        # Not what it was called when it was mounted: that name may be another disk's by now.
        disk = fc_disk(VolumeSpec(self.volume_at("", place.names)))
        device = await self._disks.find_present(disk)
        if not device:
            return
        try:
            await self._disks.remove(device)
        except KletError as error:
            raise VolumeSetupError(f"fc: failed to detach disk. Device path {device}: {error}") from error
