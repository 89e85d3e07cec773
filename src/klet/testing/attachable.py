"""A kind of volume with two stages: disks that exist only by name, and stay when the agent of a test ends."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.errors import KletError
from klet.host.mountinfo import MountEntry
from klet.model.pods import PodUID
from klet.volumes.disk import FoundVolume
from klet.volumes.names import VolumeName
from klet.volumes.plugins.base import (
    ExpandRequest,
    Expansion,
    ExpansionOutcome,
    LeftVolume,
    MountRequest,
    StagedPlugin,
    StageRequest,
    VolumeAttributes,
)
from klet.volumes.spec import VolumeSpec

DISK: Final = "kubernetes.io/gce-pd"


class DiskRack:
    """What exists of disks on the machine, whichever agent made it; and when the agent is killed."""

    def __init__(self) -> None:
        self.attached: set[str] = set()
        """Disks that the agent has attached itself."""
        self.staged: dict[str, bool] = {}
        """Disks that are mounted or staged for all pods, and whether as block volumes."""
        self.directories: dict[tuple[PodUID, str], str] = {}
        """Disks by pod and directory."""
        self.links: dict[Path, str] = {}
        """Links of pods to devices. Those of `MemoryDevices` belong here."""
        self.maps: set[str] = set()
        """Global map paths; see there."""
        self.mounted: set[tuple[PodUID, str]] = set()
        """Disks that pods have, by directory."""
        self.published: set[tuple[PodUID, str]] = set()
        """Disks that pods have as devices."""
        self.block_names: dict[str, str] = {}
        """Disks of block volumes, by the name of their PersistentVolume."""
        self.effects = 0
        """How many side effects there were."""
        self.kill_after: int | None = None
        """At which of them the agent is killed: then nothing that it does has an effect any more."""
        self.killed = asyncio.Event()

    async def effect(self) -> None:
        """Count a side effect that has just happened."""
        self.effects += 1
        if self.effects == self.kill_after:
            self.killed.set()
        if self.killed.is_set():
            await asyncio.Event().wait()

    def is_empty(self) -> bool:
        """Return whether nothing is left of any disk."""
        return not (self.attached or self.staged or self.directories or self.mounted or self.published or self.links)

    # What the volume manager sees of it on disk.

    async def pods(self) -> list[PodUID]:
        return sorted({uid for uid, _ in self.directories} | {PodUID(link.parts[2]) for link in self.links})

    async def find(self, uid: PodUID) -> list[FoundVolume]:
        names = [name for owner, name in sorted(self.directories) if owner == uid]
        links = [link for link in sorted(self.links) if link.parts[2] == uid]
        return [
            *(FoundVolume(DISK, name, Path(f"/pods/{uid}/volumes/{name}")) for name in names),
            *(FoundVolume(DISK, link.name, link, is_block=True) for link in links),
        ]

    async def has_mounts(self, uid: PodUID) -> bool:
        return any(owner == uid for owner, _ in self.mounted)


class AttachableDisks(StagedPlugin):
    """Disks by their names. One that is called `local…` needs no attaching; `broken…` cannot be read from disk.

    A test may let a call fail or wait, by the name of the method.
    """

    name = DISK
    supports_block = True
    supports_mount_options = True

    def __init__(self, rack: DiskRack | None = None) -> None:
        self.rack = rack or DiskRack()
        self.calls: list[tuple[str, ...]] = []
        self.ups: list[tuple[PodUID, str]] = []
        self.downs: list[tuple[PodUID, str]] = []
        self.came = asyncio.Event()
        self.faults: dict[str, KletError] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.is_unknown = False
        """Whether it is not known which disks have to be attached."""
        self.labels: list[tuple[str, str]] = []
        """Labels that disks were mounted with for all pods, and for one."""
        self.is_labelling = False
        self.is_full = False
        """Whether the node can have no more disks."""
        self.grows: Expansion | None = None
        """What becomes of a disk that has grown; None if there is nothing to do."""
        self.expansions: list[ExpandRequest] = []

    def supports(self, spec: VolumeSpec) -> bool:
        return _disk_of(spec) is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        return VolumeAttributes(read_only=spec.read_only)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return f"/{uid}/{spec.name}"

    def supports_label(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - all or none
        return self.is_labelling

    def device_name(self, spec: VolumeSpec) -> str:
        return _disk_of(spec) or ""

    def is_attachable(self, spec: VolumeSpec) -> bool | None:
        return None if self.is_unknown else disk_name(self.device_name(spec)) is not None

    async def wait_for_attach(self, request: StageRequest) -> str:
        disk = self.device_name(request.spec)
        await self._called("wait_for_attach", disk)
        return f"/dev/{disk}"

    async def is_exhausted(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - the same for all
        return self.is_full

    async def attach(self, spec: VolumeSpec, *, node: str) -> str:
        disk = self.device_name(spec)
        await self._called("attach", disk, node)
        self.rack.attached.add(disk)
        await self.rack.effect()
        return f"/dev/{disk}"

    async def detach(self, name: VolumeName, *, node: str) -> None:
        disk = name.removeprefix(f"{DISK}/")
        await self._called("detach", disk, node)
        self.rack.attached.discard(disk)
        await self.rack.effect()

    def device_mount_path(self, spec: VolumeSpec) -> str:
        return f"/plugins/kubernetes.io/gce-pd/mounts/{self.device_name(spec)}"

    async def mount_device(self, request: StageRequest) -> None:
        disk = self.device_name(request.spec)
        self.labels.append(("device", request.label))
        self.rack.staged[disk] = False
        await self.rack.effect()
        await self._called("mount_device", disk)

    async def unmount_device(self, mount_path: str, *, device_path: str) -> None:
        disk = mount_path.rpartition("/")[2]
        await self._called("unmount_device", disk, device_path)
        self.rack.staged.pop(disk, None)
        await self.rack.effect()

    async def set_up(self, request: MountRequest) -> datetime | None:
        uid, name = request.uid, request.spec.name
        self.ups.append((uid, name))
        self.labels.append((uid, request.label))
        self.came.set()
        self.rack.directories[uid, name] = self.device_name(request.spec)
        await self.rack.effect()
        await self._called("set_up", uid, name)
        self.rack.mounted.add((uid, name))
        await self.rack.effect()
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        self.downs.append((uid, name))
        await self._called("tear_down", uid, name)
        self.rack.mounted.discard((uid, name))
        await self.rack.effect()
        self.rack.directories.pop((uid, name), None)
        await self.rack.effect()

    def global_map_path(self, spec: VolumeSpec) -> str:
        return f"/plugins/kubernetes.io/gce-pd/volumeDevices/{self.device_name(spec)}"

    async def set_up_device(self, request: StageRequest) -> str:
        disk = self.device_name(request.spec)
        self.rack.block_names[request.spec.name] = disk
        self.rack.staged[disk] = True
        await self.rack.effect()
        await self._called("set_up_device", disk)
        return f"/staging/{disk}"

    async def map_pod_device(self, request: StageRequest) -> str:
        uid, name = request.uid, request.spec.name
        await self._called("map_pod_device", uid, name)
        self.rack.published.add((uid, name))
        await self.rack.effect()
        return f"/dev/{self.device_name(request.spec)}"

    async def unmap_pod_device(self, uid: PodUID, name: str) -> None:
        await self._called("unmap_pod_device", uid, name)
        self.rack.published.discard((uid, name))
        await self.rack.effect()

    async def tear_down_device(self, name: str, *, map_path: str, device_path: str) -> None:
        await self._called("tear_down_device", name, device_path)
        self.rack.staged.pop(map_path.rpartition("/")[2], None)
        await self.rack.effect()

    def is_expandable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - all or none
        return self.grows is not None

    async def expand(self, request: ExpandRequest) -> Expansion:
        self.expansions.append(request)
        await self._called("expand", self.device_name(request.spec))
        await self.rack.effect()
        return self.grows or Expansion(ExpansionOutcome.NOT_SUPPORTED)

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        names = self.rack.block_names if left.is_block else {}
        disk = names.get(left.name) or self.rack.directories.get((left.uid, left.name), left.name)
        if disk.startswith("broken"):
            raise KletError(f"cannot read what disk {disk} is")
        return left_disk(left.name, disk, is_block=left.is_block)

    async def find_devices(self, mounts: Sequence[MountEntry]) -> Sequence[VolumeSpec]:  # noqa: ARG002 - the rack has all
        names = {disk: name for name, disk in self.rack.block_names.items()}
        attached = {disk: disk in names for disk in self.rack.attached}
        mapped = {path.rpartition("/")[2]: True for path in self.rack.maps}
        disks = {**attached, **mapped, **self.rack.staged}
        return [left_disk(names.get(disk, disk), disk, is_block=is_block) for disk, is_block in sorted(disks.items())]

    async def _called(self, method: str, *args: str) -> None:
        self.calls.append((method, *args))
        if method in self.gates:
            await self.gates[method].wait()
        if method in self.faults:
            raise self.faults[method]


def disk_name(disk: str) -> VolumeName | None:
    """Return what the node's status calls a disk."""
    return None if disk.startswith("local") else VolumeName(f"{DISK}/{disk}")


def left_disk(name: str, disk: str, *, is_block: bool) -> VolumeSpec:
    """Return a disk as a PersistentVolume, as it is read from what a previous run left."""
    source = {"pdName": disk}
    spec = {"gcePersistentDisk": source, "volumeMode": "Block" if is_block else "Filesystem"}
    return VolumeSpec(Volume(name=name), convert(PersistentVolume, {"metadata": {"name": name}, "spec": spec}))


def _disk_of(spec: VolumeSpec) -> str | None:
    source = spec.volume.gce_persistent_disk
    if spec.persistent is not None:
        source = spec.persistent.spec.gce_persistent_disk
    return None if source is None else source.pd_name
