"""A kind of volume that a controller has to attach, and that exists only in a list."""

import asyncio
from datetime import datetime
from typing import Final

from klet.errors import KletError
from klet.model.pods import PodUID
from klet.volumes.names import VolumeName
from klet.volumes.plugins.base import AttachablePlugin, MountRequest, VolumeAttributes
from klet.volumes.spec import VolumeSpec

DISK: Final = "kubernetes.io/gce-pd"


class AttachableDisks(AttachablePlugin):
    """Disks by their names. One that is called `local…` needs no attaching; `broken…` cannot be read from disk."""

    name = DISK

    def __init__(self) -> None:
        self.ups: list[tuple[PodUID, str]] = []
        self.downs: list[tuple[PodUID, str]] = []
        self.came = asyncio.Event()

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.gce_persistent_disk is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return VolumeAttributes()

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return f"/{uid}/{spec.name}"

    def node_name_of(self, spec: VolumeSpec) -> VolumeName | None:
        assert spec.volume.gce_persistent_disk is not None  # by `supports`
        return disk_name(spec.volume.gce_persistent_disk.pd_name)

    async def found_name(self, uid: PodUID, name: str) -> VolumeName | None:  # noqa: ARG002 - a disk is the node's
        if name.startswith("broken"):
            raise KletError(f"cannot read what disk {name} is")
        return disk_name(name)

    async def set_up(self, request: MountRequest) -> datetime | None:
        self.ups.append((request.uid, request.volume.name))
        self.came.set()
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        self.downs.append((uid, name))


def disk_name(disk: str) -> VolumeName | None:
    """Return what the node's status calls a disk."""
    return None if disk.startswith("local") else VolumeName(f"{DISK}/{disk}")
