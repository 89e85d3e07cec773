"""local: a directory of the machine as a PersistentVolume. Pods may share it."""

import asyncio
from datetime import datetime
from typing import Final
from weakref import WeakValueDictionary

from klet.aio.threads import Threads
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.volumes import UsageSource
from klet.volumes.local_directories import LocalDirectories, LocalDirectory, SharedDirectory
from klet.volumes.names import Layout, VolumeName
from klet.volumes.ownership import ON_ROOT_MISMATCH, Ownership, change_ownership
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.usage import fs_group, fs_group_change_policy

DECIDER: Final = "volumes.plugins.local"
_BIND: Final = "bind"
_READ_ONLY: Final = "ro"


class LocalPlugin(VolumePlugin):
    """Binds the directory into that of the pod, and gives it to the pod's group if no other pod has it."""

    name = "kubernetes.io/local-volume"
    supports_mount_options = True
    usage_source = UsageSource.STATFS

    def __init__(
        self, *, layout: Layout, directories: LocalDirectories, recorder: CauseRecorder, threads: Threads
    ) -> None:
        self._layout = layout
        self._directories = directories
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._threads = threads
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By directory: of two pods that get it at once only the first changes its owner."""

    def unique_name(self, uid: PodUID, name: str) -> VolumeName:  # noqa: ARG002 - pods share it
        return VolumeName(f"{self.name}/{name}")

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.persistent is not None and spec.persistent.spec.local is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        return VolumeAttributes(read_only=spec.read_only, managed=not spec.read_only, relabels=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    async def set_up(self, request: MountRequest) -> datetime | None:
        spec, persistent = request.spec, request.spec.persistent
        assert persistent is not None  # by `supports`
        assert persistent.spec.local is not None
        options = {_BIND, *spec.mount_options, *([_READ_ONLY] if spec.read_only else [])}
        directory = LocalDirectory(
            source=persistent.spec.local.path,
            uid=request.uid,
            target=self._layout.volume(request.uid, self.name, spec.name),
            options=tuple(sorted(options)),
        )
        lock = self._locks.setdefault(directory.source, asyncio.Lock())
        async with lock:
            found = await self._threads.run(self._directories.set_up, directory)
            await self._own(request, directory, found)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._threads.run(self._directories.tear_down, self._layout.volume(uid, self.name, name))

    async def _own(self, request: MountRequest, directory: LocalDirectory, found: SharedDirectory) -> None:
        group = fs_group(request.pod)
        if group is None:
            return
        if not found.is_shared:
            if not request.spec.read_only:
                policy = ON_ROOT_MISMATCH if found.was_bound else fs_group_change_policy(request.pod)
                await self._threads.run(change_ownership, directory.target, Ownership(group, policy=policy))
        elif found.group != group:
            self._decisions.for_pod(request.pod).record(
                Reason.ALREADY_MOUNTED_VOLUME,
                f"The requested fsGroup is {group}, but the volume {request.spec.name} has GID {found.group}. "
                "The volume may not be shareable.",
            )
