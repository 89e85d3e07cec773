"""The board of devices: what the node has once of a volume, however many pods use it (upstream: actual state of world).

A device is attached, if its kind needs that, and then mounted or staged for all pods. Only kinds with two stages
(`StagedPlugin`) have one. Written by the reconciler and its operations, and by reconstruction.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from klet.api.quantity import Quantity
from klet.volumes.names import VolumeName
from klet.volumes.plugins.base import StagedPlugin
from klet.volumes.spec import VolumeSpec


class DeviceState(StrEnum):
    """What is known of the device stage."""

    NOT_MOUNTED = "not mounted"
    MOUNTED = "mounted"
    UNCERTAIN = "uncertain"


class NodeDevice(Struct, frozen=True, kw_only=True):
    """A volume as the node has it."""

    name: VolumeName
    plugin: StagedPlugin
    spec: VolumeSpec
    is_attachable: bool | None
    """None: a previous run of the agent had it, and the node's status has not been read since."""
    path: str = ""
    """Of the device itself, as attaching found it."""
    state: DeviceState = DeviceState.NOT_MOUNTED
    mount_path: str = ""
    """Where it is mounted; of a block volume where the links of pods to it are."""
    staging_path: str = ""
    """Where a block volume is staged, if it is."""
    size: Quantity | None = None
    """How large its filesystem was found or made last."""
    grows_unused_only: bool = False
    """It refused to grow while a pod uses it."""
    label: str | None = None
    """The SELinux label that it is mounted with; None until that is known."""
    is_reconstructed: bool = False
    """A previous run of the agent had it."""

    @property
    def may_be_mounted(self) -> bool:
        return self.state is not DeviceState.NOT_MOUNTED


class DeviceBoard:
    """The devices of the node by their names."""

    def __init__(self) -> None:
        self._devices: dict[VolumeName, NodeDevice] = {}
        self._awaits_node: set[VolumeName] = set()

    def get(self, name: VolumeName) -> NodeDevice | None:
        return self._devices.get(name)

    def all(self) -> Iterable[NodeDevice]:
        return self._devices.values()

    def put(self, device: NodeDevice) -> None:
        self._devices[device.name] = device

    def remove(self, name: VolumeName) -> None:
        self._devices.pop(name, None)
        self._awaits_node.discard(name)

    def reconstruct(self, device: NodeDevice) -> None:
        """Take in what a previous run left, unless it is known. The node's status says how it is attached."""
        if device.name not in self._devices:
            self._devices[device.name] = device
            self._awaits_node.add(device.name)

    def awaits_node(self, name: VolumeName) -> bool:
        """Return whether it is not known yet if a device is attached."""
        return name in self._awaits_node

    def correct(self, attached: dict[str, str]) -> tuple[VolumeName, ...]:
        """Take over from the node's status which devices of a previous run are attached, and where; return these.

        An attachability that is certain never changes, nor does the path of a device that is mounted for sure.
        """
        corrected = tuple(sorted(self._awaits_node))
        self._awaits_node.clear()
        for name in corrected:
            device = self._devices[name]
            path = attached.get(name, "")
            if device.state is DeviceState.UNCERTAIN and path:
                device = replace(device, path=path)
            if device.is_attachable is None:
                device = replace(device, is_attachable=name in attached)
            self._devices[name] = device
        return corrected
