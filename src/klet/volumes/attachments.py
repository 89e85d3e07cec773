"""Follows what the node's status says of attached volumes, and wakes what waits for that. Nothing is polled."""

from klet.volumes.attaching import AttachView, waiting_for_node
from klet.volumes.device_stage import NodeReader
from klet.volumes.reconciler import MountReconciler
from klet.volumes.state import VolumeBoards


class Attachments:
    """Takes over from the node's status which volumes are attached."""

    def __init__(
        self, *, boards: VolumeBoards, view: AttachView, node: NodeReader | None, reconciler: MountReconciler
    ) -> None:
        self._boards = boards
        self._view = view
        self._node = node
        self._reconciler = reconciler
        self.is_settled = False
        """Whether it is known which of the devices that a previous run left are attached."""

    async def run(self) -> None:
        """Run until cancelled; what a previous run left must have been looked for."""
        if self._view.by_agent:
            # No status lists what this agent attaches, so the plugins say what a previous run may have attached.
            devices = self._boards.devices.all()
            self._correct({device.name: "" for device in devices if device.plugin.is_attachable(device.spec)})
        if self._node is None:
            self._correct({})
            return
        with self._node.changes() as changes:
            self._follow()
            async for _ in changes:
                self._follow()

    def _follow(self) -> None:
        attached = self._view.attached()
        if attached is None:
            return
        self._correct(attached)
        for mount in waiting_for_node(self._boards.desired.all(), self._boards.devices):
            self._reconciler.add(mount.key)

    def _correct(self, attached: dict[str, str]) -> None:
        self.is_settled = True
        for name in self._boards.devices.correct(attached):
            self._boards.publish_use(name, is_attachable=None)
            self._reconciler.add_device(name)
