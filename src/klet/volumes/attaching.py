"""Volumes that have to be attached to the node: what is waited for, and what the node's status says of them.

The node's status says which of them are in use. The controller detaches none of these, so a volume that the status has
not named yet is not set up. It is woken by what it waits for; nothing is asked again and again.
"""

from collections.abc import Callable, Iterable

from klet.api.node import Node
from klet.volumes.devices import DeviceBoard, NodeDevice
from klet.volumes.names import VolumeName
from klet.volumes.state import DesiredMount, DesiredState
from klet.volumes.steps import AttachWay, decide_attach


class AttachView:
    """Knows what stands between a volume and its device."""

    def __init__(self, *, desired: DesiredState, find_node: Callable[[], Node | None], by_agent: bool) -> None:
        self._desired = desired
        self._find_node = find_node
        self.by_agent = by_agent
        """No controller attaches on this node (enableControllerAttachDetach: false)."""

    def decide(self, desired: DesiredMount | None, device: NodeDevice | None) -> AttachWay:
        if desired is None or not desired.is_staged or device is not None:
            return AttachWay.NOT_NEEDED
        attached = self.attached()
        return decide_attach(
            desired,
            device,
            is_reported=self._desired.is_reported(desired.key.volume),
            attached=attached,
            by_agent=self.by_agent,
        )

    def attached(self) -> dict[str, str] | None:
        """Return the paths of attached devices by volume, as the node's status was seen last; None if it was not."""
        node = self._find_node()
        if node is None:
            return None
        return {volume.name: volume.device_path for volume in node.status.volumes_attached}


def list_in_use(desired: Iterable[DesiredMount], devices: Iterable[NodeDevice]) -> tuple[VolumeName, ...]:
    """Return what the node's status reports: the volumes that pods should have, or the node has, sorted."""
    wanted = {mount.key.volume for mount in desired if mount.is_attachable is not False}
    return tuple(sorted(wanted | {device.name for device in devices if device.is_attachable}))


def waiting_for_node(desired: Iterable[DesiredMount], devices: DeviceBoard) -> list[DesiredMount]:
    """Return the volumes that may go on once the node's status says something else."""
    return [mount for mount in desired if mount.is_attachable is not False and devices.get(mount.key.volume) is None]
