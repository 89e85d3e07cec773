"""Volumes that a previous run of the agent left, by the disk and the mount table (volume manager: reconstruction).

No API server is asked. What is found is uncertain: a wanted volume is set up again, which is harmless, and any other
one is taken down once all pods are known. How devices are attached the node's status says later.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from klet.errors import KletError
from klet.host.mountinfo import MountEntry, find_mount
from klet.model.causes import FindingSubject
from klet.model.pods import PodUID
from klet.volumes.device_host import DeviceHost
from klet.volumes.devices import DeviceState, NodeDevice
from klet.volumes.disk import FoundVolume
from klet.volumes.kinds import name_of
from klet.volumes.labels import mounted_label
from klet.volumes.metrics import LeftCounters
from klet.volumes.names import MountKey, VolumeName
from klet.volumes.plugin_calls import carry_out
from klet.volumes.plugins.base import LeftVolume, StagedPlugin, VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import ActualMount, MountState, VolumeBoards

logger = logging.getLogger(__name__)


class FoundVolumes(Protocol):
    """Finds the volumes of pods on disk, also those of a previous run of the agent."""

    async def pods(self) -> Sequence[PodUID]: ...

    async def find(self, uid: PodUID) -> Sequence[FoundVolume]: ...


class Reconstruction:
    """Puts on the boards what is found."""

    def __init__(
        self,
        *,
        plugins: Iterable[VolumePlugin],
        boards: VolumeBoards,
        disk: FoundVolumes,
        host: DeviceHost,
        counters: LeftCounters,
    ) -> None:
        self._plugins = plugins
        self._boards = boards
        self._disk = disk
        self._host = host
        self._counters = counters
        self._tried: dict[PodUID, frozenset[tuple[str, str, bool]]] = {}
        """What was torn down though it leads to no volume."""

    async def run(self) -> None:
        """Find all volumes with devices. One that cannot be read is logged, and hides no other."""
        staged = [plugin for plugin in self._plugins if isinstance(plugin, StagedPlugin)]
        if not staged:
            return
        try:
            mounts, uids = await self._host.mounts(), await self._disk.pods()
        except KletError as error:
            logger.warning("The volumes of a previous run cannot be found", extra={"error": str(error)})
            return
        for uid in uids:
            await self._find_in(uid, mounts)
        for plugin in staged:
            await self._find_devices(plugin, mounts)

    async def take_in(self, uid: PodUID) -> None:
        """Add the volumes of one pod that this run of the agent did not set up, or only in part.

        One that leads to no volume is added once: what its tear-down has left stays until its directory can be removed.
        """
        known = {(mount.plugin.name, mount.name, mount.is_block) for mount in self._boards.actual.of_pod(uid)}
        left = {(found.plugin, found.name, found.is_block): found for found in await self._disk.find(uid)}
        tried = self._tried.pop(uid, frozenset()) & left.keys()
        unknown = [found for name, found in left.items() if name not in known | tried]
        # The table is long on a busy node, and nearly always there is nothing to be found in it.
        mounts = await self._host.mounts() if unknown else ()
        for found in unknown:
            plugin = self._plugin(found.plugin)
            if plugin is None:
                continue
            mount, device = await self._read(plugin, uid, found, mounts)
            self._add((mount, device))
            if mount.is_unreadable:
                tried |= {(found.plugin, found.name, found.is_block)}
        if tried:
            self._tried[uid] = tried

    def _plugin(self, name: str) -> VolumePlugin | None:
        return next((plugin for plugin in self._plugins if plugin.name == name), None)

    async def _find_in(self, uid: PodUID, mounts: Sequence[MountEntry]) -> None:
        try:
            for found in await self._disk.find(uid):
                plugin = self._plugin(found.plugin)
                if isinstance(plugin, StagedPlugin):
                    left, device = await self._read(plugin, uid, found, mounts)
                    if not left.is_unreadable:
                        self._add((left, device))
        except KletError as error:
            logger.warning("Volumes of a previous run cannot be read", extra={"uid": uid, "error": str(error)})

    async def _find_devices(self, plugin: StagedPlugin, mounts: Sequence[MountEntry]) -> None:
        try:
            for spec in await carry_out(plugin.find_devices(mounts), VolumeName(plugin.name)):
                self._boards.devices.reconstruct(_read_device(plugin, spec, mounts))
        except KletError as error:
            extra = {"volume": plugin.name, "error": str(error)}
            logger.warning("Devices of a previous run cannot be found", extra=extra)

    async def _read(
        self, plugin: VolumePlugin, uid: PodUID, found: FoundVolume, mounts: Sequence[MountEntry]
    ) -> tuple[ActualMount, NodeDevice | None]:
        """Return what is left of a volume, whole or in part."""
        name, device, is_unreadable = plugin.unique_name(uid, found.name), None, False
        left = LeftVolume(uid=uid, name=found.name, path=found.path, is_block=found.is_block, mounts=mounts)
        self._counters.read.add()
        try:
            spec = await carry_out(plugin.reconstruct(left), name)
            name, has_device = name_of(plugin, uid, spec)
            if has_device and isinstance(plugin, StagedPlugin):
                device = _read_device(plugin, spec, mounts)
        except KletError as error:
            is_unreadable = True
            self._counters.unreadable.add()
            extra = {"uid": uid, "volume": found.name, "error": str(error)}
            logger.warning("A volume of a previous run cannot be read", extra=extra)
        mount = ActualMount(
            key=MountKey(name, uid),
            plugin=plugin,
            name=found.name,
            state=MountState.UNCERTAIN,
            subject=FindingSubject(uid=uid),
            is_block=found.is_block,
            is_reconstructed=True,
            is_unreadable=is_unreadable,
        )
        return mount, device

    def _add(self, read: tuple[ActualMount, NodeDevice | None]) -> None:
        mount, device = read
        if device is not None:
            self._boards.devices.reconstruct(device)
        if self._boards.actual.get(mount.key) is None:
            self._boards.actual.put(mount)


def _read_device(plugin: StagedPlugin, spec: VolumeSpec, mounts: Sequence[MountEntry]) -> NodeDevice:
    """Return a device as a previous run may have left it; raises KletError."""
    state, path, label = DeviceState.NOT_MOUNTED, "", spec.left_label
    if spec.is_block:
        state, path = DeviceState.UNCERTAIN, plugin.global_map_path(spec)
    elif plugin.is_device_mountable(spec):
        state, path = DeviceState.UNCERTAIN, plugin.device_mount_path(spec)
        if not label and (found := find_mount(mounts, path)) is not None:
            label = mounted_label(found)
    return NodeDevice(
        name=plugin.volume_name(spec),
        plugin=plugin,
        spec=spec,
        is_attachable=None,
        state=state,
        mount_path=path,
        # A pod with another label must not get it before it is unmounted.
        label=label or None,
        is_reconstructed=True,
    )
