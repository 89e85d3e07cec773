"""The operations on devices: attach, mount or stage for all pods, and back (operation generator: device part).

Each is one operation of the reconciler, which runs nothing else on the volume meanwhile. A failure is a KletError; what
is known of the device afterwards is on the board.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, assert_never

from msgspec.structs import replace

from klet.aio.broadcast import Subscription
from klet.api.node import Node
from klet.errors import KletError
from klet.kube.informer import ObjectKey
from klet.model.causes import CauseRecorder
from klet.volumes import findings
from klet.volumes.device_host import DeviceHost
from klet.volumes.devices import DeviceBoard, DeviceState, NodeDevice
from klet.volumes.errors import FilesystemMismatch, MountStep, VolumeSetupError
from klet.volumes.names import VolumeName, go_list
from klet.volumes.plugin_calls import carry_out, during
from klet.volumes.plugins.base import StagedPlugin, StageRequest
from klet.volumes.state import DesiredMount
from klet.volumes.steps import AttachWay, decide_device_state

_GLOBAL: Final = "/plugins/kubernetes.io/"


class NodeReader(Protocol):
    """Reads the Node of this agent from the API server."""

    def changes(self) -> Subscription[ObjectKey]:
        """Subscribe to changes of what was seen of it last."""
        ...

    async def read(self) -> Node:
        """Return it as it is now; raises KletError."""
        ...


class DeviceStage:
    """Carries the operations out."""

    def __init__(
        self,
        *,
        devices: DeviceBoard,
        host: DeviceHost,
        node: NodeReader | None,
        node_name: str,
        recorder: CauseRecorder,
        changed: Callable[[VolumeName], None],
    ) -> None:
        self._devices = devices
        self._host = host
        self._node = node
        self._node_name = node_name
        self._recorder = recorder
        self._changed = changed
        """Called when an attachable device came or went."""

    async def attach(self, desired: DesiredMount, way: AttachWay) -> None:
        """Get the device of a volume on the board."""
        match way:
            case AttachWay.ADD:
                self._add(desired, "")
            case AttachWay.VERIFY:
                self._add(desired, await self._find_attached(desired.key.volume))
            case AttachWay.ATTACH:
                plugin = _plugin_of(desired)
                path = await carry_out(plugin.attach(desired.spec, node=self._node_name), desired.key.volume)
                self._add(desired, path)
                self._recorder.record(findings.attached(desired))
            case AttachWay.NOT_NEEDED | AttachWay.WAIT:
                return
            case _:
                assert_never(way)

    async def wait_for_attach(self, desired: DesiredMount) -> str:
        """Return the path of the attached device. A failure changes nothing."""
        device = self._known(desired)
        if not desired.is_attachable:
            return device.path
        request = StageRequest(pod=desired.pod, spec=desired.spec, device_path=device.path)
        with during(MountStep.WAIT_FOR_ATTACH):
            return await carry_out(_plugin_of(desired).wait_for_attach(request), device.name)

    async def mount(self, desired: DesiredMount, path: str) -> NodeDevice:
        """Mount or stage the device, unless it is; return it as it is then."""
        device, plugin, spec = self._known(desired), _plugin_of(desired), desired.spec
        with during(MountStep.DEVICE_PATH):
            mount_path = plugin.global_map_path(spec) if spec.is_block else plugin.device_mount_path(spec)
        if device.state is DeviceState.MOUNTED:
            return device
        request = StageRequest(pod=desired.pod, spec=spec, device_path=path, mount_path=mount_path, label=desired.label)
        staging = ""
        try:
            if spec.is_block:
                staging = await carry_out(plugin.set_up_device(request), device.name)
            else:
                await carry_out(plugin.mount_device(request), device.name)
        except KletError as error:
            self._note_failure(desired, error, path=path, mount_path=mount_path)
            with during(MountStep.MOUNT_DEVICE):
                raise
        device = self._update(
            device.name, state=DeviceState.MOUNTED, path=path, mount_path=mount_path, staging_path=staging
        )
        if desired.is_labelled:
            device = replace(device, label=desired.label)
            self._devices.put(device)
        return device

    async def unmount(self, device: NodeDevice) -> None:
        """Unmount or unstage a device that no pod has any more."""
        if device.spec.is_block:
            await self._unmap(device)
        else:
            await self._unmount(device)
        device = self._update(device.name, state=DeviceState.NOT_MOUNTED)
        self._devices.put(replace(device, mount_path="", staging_path="", label=None))

    async def detach(self, device: NodeDevice) -> None:
        """Detach a device that this agent has attached."""
        await carry_out(device.plugin.detach(device.name, node=self._node_name), device.name)
        self.forget(device)

    def forget(self, device: NodeDevice) -> None:
        """Take a device off the board. From now on a controller may detach it."""
        self._devices.remove(device.name)
        if device.is_attachable is not False:
            self._changed(device.name)

    async def _unmount(self, device: NodeDevice) -> None:
        try:
            path = device.plugin.device_mount_path(device.spec)
        except KletError:
            if not device.mount_path:
                raise
            path = device.mount_path
        tail = path[path.find(_GLOBAL) :] if _GLOBAL in path else path
        others = [each for each in await self._host.references(path) if tail not in each]
        if others:
            raise VolumeSetupError(
                f'GetDeviceMountRefs check failed: the device mount path "{path}" is still mounted by other '
                f"references {go_list(others)}"
            )
        await self._try(device, device.plugin.unmount_device(path, device_path=device.path))
        await self._check_unused(device)

    async def _unmap(self, device: NodeDevice) -> None:
        path = device.mount_path or device.plugin.global_map_path(device.spec)
        mapped = await self._host.mapped(path)
        if mapped:
            raise VolumeSetupError(f'the device "{path}" is still referenced from other Pods {go_list(mapped)}')
        self._update(device.name, state=DeviceState.UNCERTAIN)
        name = device.spec.name
        await self._try(device, device.plugin.tear_down_device(name, map_path=path, device_path=device.path))
        await self._host.remove_map(path)
        await self._check_unused(device)

    async def _try(self, device: NodeDevice, operation: Awaitable[None]) -> None:
        try:
            await carry_out(operation, device.name)
        except KletError:
            self._update(device.name, state=DeviceState.UNCERTAIN)
            raise

    async def _check_unused(self, device: NodeDevice) -> None:
        """Raise VolumeSetupError if the kernel still uses the device: it must not be detached then."""
        if device.path.startswith("/") and await self._host.is_in_use(device.path):
            self._update(device.name, state=DeviceState.UNCERTAIN)
            raise VolumeSetupError("the device is in use when it was no longer expected to be in use")

    async def _find_attached(self, name: VolumeName) -> str:
        if self._node is None:
            raise VolumeSetupError("Volume not attached according to node status")
        node = await self._node.read()
        for volume in node.status.volumes_attached:
            if volume.name == name:
                return volume.device_path
        raise VolumeSetupError("Volume not attached according to node status")

    def _add(self, desired: DesiredMount, path: str) -> None:
        device = NodeDevice(
            name=desired.key.volume,
            plugin=_plugin_of(desired),
            spec=desired.spec,
            is_attachable=desired.is_attachable,
            path=path,
            size=desired.claim_size,
        )
        self._devices.put(device)
        if device.is_attachable is not False:
            self._changed(device.name)

    def _note_failure(self, desired: DesiredMount, error: KletError, *, path: str, mount_path: str) -> None:
        device = self._known(desired)
        state = decide_device_state(device.state, error, is_reconstructed=device.is_reconstructed)
        if state is DeviceState.UNCERTAIN:
            self._update(device.name, state=state, path=path, mount_path=mount_path)
        else:
            self._update(device.name, state=state)
        if isinstance(error, FilesystemMismatch) and desired.spec.persistent is not None:
            self._recorder.record(findings.filesystem_mismatch(desired, error))

    def _update(
        self, name: VolumeName, *, state: DeviceState, path: str = "", mount_path: str = "", staging_path: str = ""
    ) -> NodeDevice:
        """Change a device as it is on the board by now. Empty paths change nothing."""
        device = self._devices.get(name)
        assert device is not None  # only the operation that runs now takes it off the board
        device = replace(
            device,
            state=state,
            path=path or device.path,
            mount_path=mount_path or device.mount_path,
            staging_path=staging_path or device.staging_path,
        )
        self._devices.put(device)
        return device

    def _known(self, desired: DesiredMount) -> NodeDevice:
        device = self._devices.get(desired.key.volume)
        assert device is not None  # it is attached before anything else
        return device


def _plugin_of(desired: DesiredMount) -> StagedPlugin:
    assert isinstance(desired.plugin, StagedPlugin)  # otherwise it has no device
    return desired.plugin
