"""What volumes are called and where they lie below the agent's root. Pure."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, NewType

from msgspec import Struct

from klet.model.pods import PodUID

VolumeName = NewType("VolumeName", str)
"""Unique on the node: plugin, and pod and volume or whatever else distinguishes the plugin's volumes."""

EMPTY_DIR: Final = "kubernetes.io/empty-dir"
READY: Final = "ready"


class MountKey(NamedTuple):
    """A volume as one pod uses it."""

    volume: VolumeName
    uid: PodUID


def escape(name: str) -> str:
    """Return a name as part of a path."""
    return name.replace("/", "~")


def unescape(name: str) -> str:
    return name.replace("~", "/")


def pod_volume_name(plugin: str, uid: PodUID, name: str) -> VolumeName:
    """Return the unique name of a volume that belongs to one pod."""
    return VolumeName(f"{plugin}/{uid}-{name}")


def go_list(names: Iterable[str]) -> str:
    """Return names as messages list them."""
    return f"[{' '.join(names)}]"


class Layout(Struct, frozen=True):
    """The directories of pods."""

    root: Path

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def plugins(self) -> Path:
        """Return where plugins have what all pods share."""
        return self.root / "plugins"

    def pod(self, uid: PodUID) -> Path:
        return self.pods / uid

    def volumes(self, uid: PodUID) -> Path:
        return self.pod(uid) / "volumes"

    def volume(self, uid: PodUID, plugin: str, name: str) -> Path:
        return self.root.joinpath("pods", uid, "volumes", escape(plugin), name)  # often: one path, not five

    def devices(self, uid: PodUID) -> Path:
        return self.pod(uid) / "volumeDevices"

    def device(self, uid: PodUID, plugin: str, name: str) -> Path:
        """Return the link to the device that a pod has of a block volume."""
        return self.devices(uid) / escape(plugin) / name

    def marker(self, uid: PodUID, name: str) -> Path:
        """Return the file that marks a scratch directory as set up."""
        return self.root.joinpath("pods", uid, "plugins", escape(EMPTY_DIR), name, READY)
