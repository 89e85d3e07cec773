"""The operations on volumes of pods: set up or publish for one pod, and back (operation generator: pod part).

Each is one operation of the reconciler. A failure is a KletError; what is known of the volume afterwards is on the
board, except that it is mounted: that the reconciler notes.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec.structs import replace

from klet.errors import KletError
from klet.model.causes import CauseRecorder
from klet.model.pods import subject_of
from klet.volumes import findings
from klet.volumes.device_host import BlockMapping, DeviceHost
from klet.volumes.device_stage import DeviceStage
from klet.volumes.devices import NodeDevice
from klet.volumes.errors import FilesystemMismatch, MapStep, MountStep, UncertainProgress, VolumeSetupError
from klet.volumes.expansion import VolumeExpander
from klet.volumes.mount_checks import check_mount
from klet.volumes.names import Layout, MountKey
from klet.volumes.plugin_calls import carry_out, during
from klet.volumes.plugins.base import MountRequest, StagedPlugin, StageRequest
from klet.volumes.state import ActualMount, DesiredMount, MountState, PodsOfVolumes, VolumeBoards
from klet.volumes.steps import decide_mount_state


class PodStage:
    """Carries the operations out."""

    def __init__(
        self,
        *,
        boards: VolumeBoards,
        devices: DeviceStage,
        expander: VolumeExpander,
        host: DeviceHost,
        layout: Layout,
        find_labels: Callable[[], Mapping[str, str] | None],
        recorder: CauseRecorder,
    ) -> None:
        self._boards = boards
        self._devices = devices
        self._expander = expander
        self._host = host
        self._layout = layout
        self._find_labels = find_labels
        self._recorder = recorder
        self._mounting = PodsOfVolumes()

    async def mount(self, desired: DesiredMount, *, is_remount: bool) -> datetime | None:
        """Mount the device if that is not done, and set the volume up; return when its content expires, if it does."""
        key = desired.key
        check_mount(desired.spec, desired.plugin, labels=self._find_labels(), is_elsewhere=self._is_elsewhere(key))
        self._mounting.add(key)
        try:
            path, device = "", None
            if desired.is_staged:
                path = await self._devices.wait_for_attach(desired)
                if desired.has_device_stage:
                    device = await self._devices.mount(desired, path)
            if desired.spec.is_block:
                await self._map(desired, device, path)
                return None
            return await self._set_up(desired, device, path, is_remount=is_remount)
        finally:
            self._mounting.discard(key)

    async def unmount(self, actual: ActualMount) -> None:
        """Take the volume from the pod. After a failure it may be half gone: only a whole set-up mounts it again."""
        try:
            if actual.is_block:
                self._boards.actual.put(replace(actual, state=MountState.UNCERTAIN))
                await self._unmap(actual)
            else:
                await carry_out(actual.plugin.tear_down(actual.key.uid, actual.name), actual.key.volume)
        except KletError:
            self._boards.actual.put(replace(actual, state=MountState.UNCERTAIN))
            raise
        self._boards.actual.remove(actual.key)

    async def _set_up(
        self, desired: DesiredMount, device: NodeDevice | None, path: str, *, is_remount: bool
    ) -> datetime | None:
        request = MountRequest(
            pod=desired.pod,
            allocation=desired.allocation,
            spec=desired.spec,
            is_remount=is_remount,
            device_path=path,
            device_mount_path="" if device is None else device.mount_path,
            label=desired.label,
        )
        try:
            old_at = await carry_out(desired.plugin.set_up(request), desired.key.volume)
        except KletError as error:
            self._note_failure(desired, error)
            if isinstance(error, FilesystemMismatch) and desired.spec.persistent is not None:
                self._recorder.record(findings.filesystem_mismatch(desired, error))
            raise
        try:
            with during(MountStep.EXPAND):
                where = desired.plugin.path(desired.key.uid, desired.spec)
                await self._expander.follow_on_mount(desired, device, mount_path=where)
        except KletError as error:
            self._note_failure(desired, UncertainProgress(str(error)))
            raise
        return old_at

    async def _map(self, desired: DesiredMount, device: NodeDevice | None, path: str) -> None:
        plugin = desired.plugin
        if device is None or not isinstance(plugin, StagedPlugin):
            raise VolumeSetupError(f"{plugin.name} has no block volumes")
        request = StageRequest(pod=desired.pod, spec=desired.spec, device_path=path, mount_path=device.mount_path)
        mapping = self._mapping(desired.key, plugin, desired.spec.name, device.mount_path)
        with during(MapStep.MAP_POD_DEVICE):
            await self._host.announce(mapping)
        try:
            published = await carry_out(plugin.map_pod_device(request), desired.key.volume)
        except KletError as error:
            self._note_failure(desired, error)
            with during(MapStep.MAP_POD_DEVICE):
                raise
        try:
            with during(MapStep.MAP_BLOCK_VOLUME):
                if not (published or path):
                    raise VolumeSetupError("device path of the volume is empty")
                found = await self._host.resolve(published or path)
                device = replace(self._boards.devices.get(device.name) or device, path=found)
                self._boards.devices.put(device)
                await self._host.map_device(mapping, found)
            for finding in findings.mapped(
                desired, global_map_path=device.mount_path, volume_map_path=str(mapping.link.parent)
            ):
                self._recorder.record(finding)
            with during(MapStep.EXPAND):
                await self._expander.follow_on_mount(desired, device, mount_path=found)
        except KletError as error:
            self._note_failure(desired, UncertainProgress(str(error)))
            raise

    async def _unmap(self, actual: ActualMount) -> None:
        key, plugin = actual.key, actual.plugin
        device = self._boards.devices.get(key.volume)
        if not isinstance(plugin, StagedPlugin):
            return
        map_path = ""
        if device is not None:
            map_path = device.mount_path or plugin.global_map_path(device.spec)
        mapping = self._mapping(key, plugin, actual.name, map_path)
        if map_path:
            await self._host.unmap_device(mapping)
        await carry_out(plugin.unmap_pod_device(key.uid, actual.name), key.volume)
        # Upstream does this first. A run that is killed before leaves the link, which leads the next one here.
        await self._host.unlink(mapping)

    def _mapping(self, key: MountKey, plugin: StagedPlugin, name: str, map_path: str) -> BlockMapping:
        return BlockMapping(map_path=map_path, uid=key.uid, link=self._layout.device(key.uid, plugin.name, name))

    def _note_failure(self, desired: DesiredMount, error: KletError) -> None:
        """Keep what is known of a volume after setting it up has failed."""
        key = desired.key
        before = self._boards.actual.get(key)
        state = decide_mount_state(
            None if before is None else before.state,
            error,
            is_reconstructed=before is not None and before.is_reconstructed,
        )
        if state is None:
            self._boards.actual.remove(key)
        elif before is not None:
            self._boards.actual.put(replace(before, state=state))
        else:
            self._boards.actual.put(describe(desired, state))

    def _is_elsewhere(self, key: MountKey) -> bool:
        """Return whether another pod has the volume, or is about to."""
        if self._boards.actual.is_elsewhere(key):
            return True
        return any(uid != key.uid for uid in self._mounting.of(key.volume))


def describe(desired: DesiredMount, state: MountState) -> ActualMount:
    """Return the entry of a volume that has been set up, or may have been."""
    return ActualMount(
        key=desired.key,
        plugin=desired.plugin,
        name=desired.spec.name,
        state=state,
        subject=subject_of(desired.pod),
        is_block=desired.spec.is_block,
        revision=desired.revision,
    )
