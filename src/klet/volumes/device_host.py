"""What the machine does for devices of volumes: binds, links and locks of block volumes, and what the kernel knows.

What every kind of block volume has: the device bound at `<global map path>/<pod UID>`, a loop device on that as a
lock, and the pod's link to the device.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from klet.host.mountinfo import MountEntry
from klet.model.pods import PodUID


class BlockMapping(Struct, frozen=True, kw_only=True):
    """A block volume of one pod."""

    map_path: str
    """The directory of all pods' devices of the volume."""
    uid: PodUID
    link: Path
    """What containers are given."""


class DeviceHost(Protocol):
    """The machine. A failure is a KletError."""

    async def mounts(self) -> Sequence[MountEntry]:
        """Return the mount table."""
        ...

    async def references(self, path: str) -> Sequence[str]:
        """Return where else what is mounted at a path is mounted."""
        ...

    async def is_in_use(self, device: str) -> bool:
        """Return whether something has the device open exclusively; False for what is no device, or is not there."""
        ...

    async def resolve(self, device: str) -> str:
        """Return the path of a device without links."""
        ...

    async def announce(self, mapping: BlockMapping) -> None:
        """Make the pod's link, unless it is there, before there is a device: a later run finds the volume by it."""
        ...

    async def map_device(self, mapping: BlockMapping, device: str) -> None:
        """Bind the device, link and lock it. Doing it twice does no harm."""
        ...

    async def unmap_device(self, mapping: BlockMapping) -> None:
        """Unlock and unbind it; the link stays. What is not there does no harm."""
        ...

    async def unlink(self, mapping: BlockMapping) -> None:
        """Remove the pod's link: nothing is left of the volume by now."""
        ...

    async def mapped(self, map_path: str) -> Sequence[str]:
        """Return the pods whose devices are still bound below a global map path."""
        ...

    async def remove_map(self, map_path: str) -> None:
        """Remove the directory of a global map path; never across a mount."""
        ...
