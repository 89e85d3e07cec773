"""A kind of volume that a controller has to attach, and that exists only in a list."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from klet.api.volume import Volume
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.volumes import volume_gid
from klet.volumes.names import VolumeName
from klet.volumes.plugins.base import AttachablePlugin, MountRequest, VolumeAttributes

DISK: Final = "kubernetes.io/gce-pd"


class AttachableDisks(AttachablePlugin):
    """Disks by their names. One that is called `local…` needs no attaching; `broken…` cannot be read from disk."""

    name = DISK

    def __init__(self, *, annotations: Mapping[str, str] | None = None) -> None:
        self._annotations = annotations or {}
        """Those of the PersistentVolume that each of them belongs to."""
        self.ups: list[tuple[PodUID, str]] = []
        self.downs: list[tuple[PodUID, str]] = []
        self.came = asyncio.Event()

    def supports(self, volume: Volume) -> bool:
        return volume.gce_persistent_disk is not None

    def attributes(self, volume: Volume) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return VolumeAttributes(gid=volume_gid(self._annotations))

    def path(self, uid: PodUID, volume: Volume) -> str:
        return f"/{uid}/{volume.name}"

    def node_name_of(self, volume: Volume) -> VolumeName | None:
        assert volume.gce_persistent_disk is not None  # by `supports`
        return disk_name(volume.gce_persistent_disk.pd_name)

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
