"""What CSI volumes are called, and where they lie below the agent's root. Pure."""

import hashlib
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.files import is_plain_name
from klet.model.pods import PodUID
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import escape

PLUGIN: Final = "kubernetes.io/csi"
DATA_FILE: Final = "vol_data.json"
MOUNT: Final = "mount"
GLOBAL_MOUNT: Final = "globalmount"
PREFIX: Final = "kubernetes.io/csi: "
"""With which the errors of this plugin begin, but for those of drivers."""
_STAGING, _PUBLISH = "staging", "publish"


def attachment_name(handle: str, driver: str, node: str) -> str:
    """Return the name of the VolumeAttachment of a volume on a node."""
    return f"csi-{_digest(handle + driver + node)}"


def inline_handle(uid: PodUID, name: str) -> str:
    """Return the handle of a volume that a pod has inline: it lives as long as the pod."""
    return f"csi-{_digest(uid + name)}"


def device_name(driver: str, handle: str) -> str:
    """Return what distinguishes a volume from all others on the node."""
    return f"{driver}^{handle}"


class Place(Struct, frozen=True):
    """A directory: where it begins to be klet's alone, and the names from there on."""

    root: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.names)

    @property
    def parent(self) -> "Place":
        return Place(self.root, self.names[:-1])

    def below(self, *names: str) -> "Place":
        return Place(self.root, (*self.names, *names))


class CsiLayout(Struct, frozen=True):
    """The directories of CSI volumes. A name from outside that is no plain name is an error."""

    root: Path
    """The agent's."""

    def volume(self, uid: PodUID, name: str) -> Place:
        """Return the directory that a pod has of a volume."""
        return Place(self.root / "pods", (_plain(uid), "volumes", escape(PLUGIN), _plain(escape(name))))

    def target(self, uid: PodUID, name: str) -> Place:
        """Return where a volume is published for a pod. The driver makes that."""
        return self.volume(uid, name).below(MOUNT)

    def staged(self, driver: str, handle: str) -> Place:
        """Return the directory of a volume that is staged."""
        return self.drivers.below(_plain(driver), _digest(handle))

    def staging(self, driver: str, handle: str) -> Place:
        return self.staged(driver, handle).below(GLOBAL_MOUNT)

    @property
    def drivers(self) -> Place:
        """Return the directory of all drivers, and of their block volumes."""
        return Place(self.root / "plugins", tuple(PLUGIN.split("/")))

    @property
    def blocks(self) -> Place:
        return self.drivers.below("volumeDevices")

    def block(self, name: str) -> Place:
        """Return the directory of a block volume, by the name of its spec."""
        return self.blocks.below(_plain(escape(name)))

    def block_map(self, name: str) -> Place:
        """Return where the devices are that pods have of a block volume."""
        return self.block(name).below("dev")

    def block_data(self, name: str) -> Place:
        return self.block(name).below("data")

    def block_staging(self, name: str) -> Place:
        return self.blocks.below(_STAGING, _plain(name))

    def block_published(self, name: str) -> Place:
        """Return the directory of what a driver publishes of a block volume."""
        return self.blocks.below(_PUBLISH, _plain(name))

    def block_target(self, name: str, uid: PodUID) -> Place:
        return self.block_published(name).below(_plain(uid))


def is_block_directory(name: str) -> bool:
    """Return whether a name among those of block volumes is a volume's. The two others are for all of them."""
    return name not in {_STAGING, _PUBLISH}


def _plain(name: str) -> str:
    if not is_plain_name(name):
        raise VolumeSetupError(f"{PREFIX}{name[:256]!r} is no name of a file")
    return name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
