"""Which volumes the node's pods should have, and waiting for them (volume manager: populator).

Nothing is polled: a volume is handled when its pod changes, an object that it shows changes or an operation on it
ends, when a back-off ends and when its content is due (`reconciler.py`). What a claim leads to is looked up first,
beside everything else (`pod_claims.py`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.broadcast import Subscription
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.objects import ObjectRef
from klet.model.pods import PodUID, uid_of
from klet.model.roles import Allocations
from klet.model.volumes import MeasurableVolume, is_local_ephemeral
from klet.volumes.attaching import list_in_use, waiting_for_node
from klet.volumes.attachments import Attachments
from klet.volumes.claims import claim_of
from klet.volumes.errors import TIMED_OUT, AttachLimitReached, VolumeSetupError, WaitFailed
from klet.volumes.kinds import VolumeKinds
from klet.volumes.names import VolumeName, go_list
from klet.volumes.operations import whole
from klet.volumes.plugins.base import StagedPlugin, VolumeAttributes
from klet.volumes.pod_claims import ClaimedVolume, ClaimKey, PodClaims
from klet.volumes.reconciler import MountReconciler
from klet.volumes.reconstruction import FoundVolumes, Reconstruction
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import DesiredMount, VolumeBoards, has_changed
from klet.volumes.steps import needs_expansion
from klet.volumes.usage import used_volumes

PATIENCE: Final = timedelta(minutes=2, seconds=3)
"""How long a pod waits for its volumes to come or to go."""


class MountedVolume(Struct, frozen=True):
    """A volume that containers can mount."""

    path: str
    """On the host; empty for one that only the runtime sees."""
    attributes: VolumeAttributes
    inner_name: str
    """What its directories are called: the name of its PersistentVolume, or what the pod calls it."""
    gid: str = ""
    """The group that can use it, as its PersistentVolume says; empty if it says nothing."""
    device: str = ""
    """The link to its device, if containers have it as one."""


class VolumeDisk(FoundVolumes, Protocol):
    """Finds the volumes of pods on disk, also those of a previous run of the agent."""

    async def has_mounts(self, uid: PodUID) -> bool:
        """Return whether one of them is a mount, or that cannot be read."""
        ...


class VolumeManager:
    """Owns the volumes of the node's pods."""

    def __init__(
        self,
        *,
        kinds: VolumeKinds,
        claims: PodClaims,
        boards: VolumeBoards,
        reconciler: MountReconciler,
        reconstruction: Reconstruction,
        attachments: Attachments,
        allocations: Allocations,
        disk: VolumeDisk,
    ) -> None:
        self._kinds = kinds
        self._claims = claims
        self._boards = boards
        self._desired, self._actual, self._waiters = boards.desired, boards.actual, boards.waiters
        self._reconciler = reconciler
        self._reconstruction = reconstruction
        self._attachments = attachments
        self._allocations = allocations
        self._disk = disk

    async def run(self) -> None:
        """Run until cancelled."""
        # First what a previous run left attached: a status without these volumes would let the controller detach them.
        await self._reconstruction.run()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconciler.run(), name="volume reconciler")
            group.create_task(self._attachments.run(), name="attached volumes")
            while True:
                key = await self._claims.next()
                group.create_task(self._look_up(key), name=f"claim of volume {key.volume}")

    def process(self, pod: Pod) -> None:
        """Add a pod or its changes to the desired state. Called in every sync; what has not changed is left alone."""
        uid = uid_of(pod)
        # A late sync must not bring back a volume that wait_for_unmount is taking down.
        if uid in self._boards.leaving or not pod.spec.volumes:
            return
        used, allocation = used_volumes(pod), self._allocations.of(pod)
        for volume in pod.spec.volumes:
            if volume.name not in used:
                continue
            use = claim_of(pod, volume)
            if use is None:
                self._want(pod, allocation, VolumeSpec(volume), volume.name)
                continue
            known = self._claims.want(pod, allocation, volume, use)
            if known.spec is not None and self._want(pod, allocation, known.spec, volume.name, claimed=known):
                self._claims.refresh(uid, volume.name)
        self._waiters.notify(uid)

    def objects_changed(self, ref: ObjectRef) -> None:
        """Bring every volume that shows an object up to date, at once even if its last try failed."""
        for key in sorted(self._desired.users_of(ref)):
            self._reconciler.renew(key)

    def refresh_all(self) -> None:
        """Bring everything up to date that may have changed."""
        for mount in list(self._desired.all()):
            if mount.remounts:
                self._reconciler.renew(mount.key)

    async def wait_for_attach_and_mount(self, pod: Pod) -> None:
        """Return when every volume that the pod uses is mounted; raises WaitFailed. May be cancelled at any time."""
        uid, expected = uid_of(pod), used_volumes(pod)
        if not expected:
            return
        self.process(pod)
        errors: list[str] = []

        def is_settled() -> bool:
            errors.extend(self._desired.pop_errors(uid))
            if self._claims.is_pending(uid):
                return False
            return bool(errors or self._claims.errors(uid)) or not self._unmounted(uid, expected)

        await self._waiters.wait_until(uid, is_settled, patience=PATIENCE)
        unmounted = self._unmounted(uid, expected)
        if not unmounted:
            return
        errors += self._claims.errors(uid)
        wanted = {name for mount in self._desired.of_pod(uid) for name in mount.names}
        lists = (
            f"unmounted volumes={go_list(unmounted)}, unattached volumes={go_list(self._unattached(uid))}, "
            f"failed to process volumes={go_list(sorted(expected - wanted))}"
        )
        message = f"{lists}: {'; '.join(sorted(errors)) or TIMED_OUT}"
        if await self._is_exhausted(uid):
            raise AttachLimitReached(message)
        raise WaitFailed(message, is_timeout=not errors)

    async def wait_for_unmount(self, uid: PodUID) -> None:
        """Unmount all volumes of a terminated pod, also those of a previous run of the agent; raises WaitFailed.

        No container of the pod may run any more.
        """
        self._boards.leaving.add(uid)
        try:
            self._drop_desired(uid)
            # An operation that has begun runs to its end: only then is the disk what it will stay, and can be read.
            await self._waiters.wait_until(uid, lambda: not self._reconciler.is_busy(uid), patience=PATIENCE)
            if self._reconciler.is_busy(uid):
                # What it mounts in the end would belong to nobody, in a directory that has been removed.
                raise WaitFailed(f"volumes are still being mounted or unmounted: {TIMED_OUT}", is_timeout=True)
            await self._reconstruction.take_in(uid)
            for mount in self._actual.of_pod(uid):
                self._reconciler.add(mount.key)
            await self._waiters.wait_until(uid, lambda: not self._actual.of_pod(uid), patience=PATIENCE)
            left = self._actual.of_pod(uid)
        finally:
            self._boards.leaving.discard(uid)
        if left:
            names = go_list(sorted(mount.key.volume for mount in left))
            raise WaitFailed(f"mounted volumes={names}: {TIMED_OUT}", is_timeout=True)

    async def pod_volumes_exist(self, uid: PodUID) -> bool:
        """Return whether a pod has, or may have, a volume: then its directory and cgroup must stay."""
        if self._actual.of_pod(uid):
            return True
        return await self._disk.has_mounts(uid)

    def mounted_volumes(self, uid: PodUID) -> Mapping[str, MountedVolume]:
        """Return the volumes that containers of a pod can mount, by their name in the pod."""
        return {
            name: self._describe(mount)
            for mount in self._desired.of_pod(uid)
            if self._actual.is_mounted(mount.key)
            for name in mount.names
        }

    def measurable(self, uid: PodUID) -> tuple[MeasurableVolume, ...]:
        """Return the mounted volumes of a pod whose use can be measured."""
        return tuple(
            MeasurableVolume(
                name=name,
                path=mount.plugin.path(uid, mount.spec),
                source=source,
                is_ephemeral=is_local_ephemeral(mount.spec.volume),
                claim=None if (use := claim_of(mount.pod, mount.spec.volume)) is None else use.reference,
            )
            for mount in self._desired.of_pod(uid)
            if (source := mount.plugin.usage_source) is not None
            and not mount.spec.is_block
            and self._actual.is_mounted(mount.key)
            for name in sorted(mount.names)
        )

    def volumes_in_use(self) -> tuple[VolumeName, ...] | None:
        """Return the attachable volumes for the node's status (volumesInUse); None until they are known."""
        if not self._attachments.is_settled:
            return None
        return list_in_use(self._desired.all(), self._boards.devices.all())

    def in_use_changes(self) -> Subscription[VolumeName]:
        """Subscribe to volumes that came into use or may be out of it."""
        return self._boards.in_use_changes.subscribe()

    def mark_reported_in_use(self, names: Iterable[str]) -> None:
        """Set up the volumes that waited until the API server knows them as in use."""
        for key in self._desired.report(names):
            self._reconciler.add(key)

    def plugin_changed(self, name: str) -> None:
        """Ask a plugin again about its volumes, and try at once what has failed: its driver has come, for instance."""
        for mount in list(self._desired.all()):
            if mount.plugin.name == name:
                self._want(mount.pod, mount.allocation, mount.spec, next(iter(mount.names)))
                self._reconciler.retry(mount.key)
        for actual in list(self._actual.all()):
            if actual.plugin.name == name:
                self._reconciler.retry(actual.key)
        for device in list(self._boards.devices.all()):
            if device.plugin.name == name:
                self._reconciler.retry(whole(device.name))

    def release_unused(self) -> None:
        """Unmount the devices that a previous run left and no pod has. Called once all pods of this node are known."""
        if not self._boards.pods_are_known.is_set():
            self._boards.pods_are_known.set()
            for device in self._boards.devices.all():
                self._reconciler.add_device(device.name)

    def _want(
        self,
        pod: Pod,
        allocation: PodAllocation,
        spec: VolumeSpec,
        name: str,
        *,
        claimed: ClaimedVolume | None = None,
    ) -> bool:
        """Have a volume of a pod in the desired state; return whether it may grow while it is there."""
        uid = uid_of(pod)
        try:
            wanted = self._kinds.describe(pod, allocation, spec, name)
        except KletError as error:
            self._desired.add_error(uid, str(error))
            return False
        key = wanted.key
        before = self._desired.get(key)
        if claimed is not None:
            wanted = replace(wanted, claim=claimed.use, claim_size=claimed.size)
        elif before is not None:
            wanted = replace(wanted, claim=before.claim, claim_size=before.claim_size)
        if before is None:
            if (former := self._former(wanted, name)) is not None:
                # What it stands for was made again meanwhile, and is another volume. The pod keeps what it has:
                # both have the same directory.
                self._desired.add_error(uid, f"volume {name} stands for {key.volume} now, the pod has {former}")
                return False
            try:
                self._kinds.check_label(wanted, self._desired.of_volume(key.volume))
            except VolumeSetupError as error:
                self._desired.add_error(uid, str(error))
                return False
            self._desired.put(wanted)
            self._reconciler.add(key)
            self._boards.publish_use(key.volume, is_attachable=wanted.is_attachable)
        else:
            wanted = replace(wanted, names=before.names | {name}, revision=before.revision)
            if wanted != before:
                self._update(before, wanted)
        self._follow_size(wanted)
        return wanted.is_expandable

    def _former(self, wanted: DesiredMount, name: str) -> VolumeName | None:
        """Return which volume a name of a pod stood for before, if that is another one in the same directory."""
        return next(
            (
                each.key.volume
                for each in self._desired.of_pod(wanted.key.uid)
                if each.plugin.name == wanted.plugin.name and each.spec.name == wanted.spec.name and name in each.names
            ),
            None,
        )

    def _update(self, before: DesiredMount, after: DesiredMount) -> None:
        self._desired.put(after)
        if after.remounts and has_changed(before, after):
            self._reconciler.renew(after.key)
        if after.is_attachable is not before.is_attachable:
            self._boards.publish_use(after.key.volume, is_attachable=None)
            self._reconciler.add(after.key)

    def _follow_size(self, wanted: DesiredMount) -> None:
        """Note how large the filesystem of a volume is, if that is not known, and let it grow."""
        device = self._boards.devices.get(wanted.key.volume)
        if device is None:
            return
        if device.size is None and wanted.claim_size is not None:
            device = replace(device, size=wanted.claim_size)
            self._boards.devices.put(device)
        if needs_expansion(wanted, device):
            self._reconciler.add(wanted.key)

    async def _look_up(self, key: ClaimKey) -> None:
        """Look up a claim of a pod, and have the volume that it leads to."""
        found = await self._claims.look_up(key)
        if found is not None and found.spec is not None and key.uid not in self._boards.leaving:
            self._want(found.pod, found.allocation, found.spec, key.volume, claimed=found)
        self._waiters.notify(key.uid)

    def _describe(self, mount: DesiredMount) -> MountedVolume:
        uid, spec, plugin = mount.key.uid, mount.spec, mount.plugin
        return MountedVolume(
            "" if spec.is_block else plugin.path(uid, spec),
            # The label is that of the mount: files of such a volume are not relabelled.
            replace(plugin.attributes(spec), relabels=False) if mount.label else plugin.attributes(spec),
            inner_name=spec.name,
            gid=spec.gid,
            device=str(self._kinds.layout.device(uid, plugin.name, spec.name)) if spec.is_block else "",
        )

    def _unmounted(self, uid: PodUID, expected: frozenset[str]) -> list[str]:
        mounts = (mount for mount in self._desired.of_pod(uid) if self._actual.is_mounted(mount.key))
        return sorted(expected - {name for mount in mounts for name in mount.names})

    def _unattached(self, uid: PodUID) -> list[str]:
        waiting = waiting_for_node(self._desired.of_pod(uid), self._boards.devices)
        return sorted(name for mount in waiting for name in mount.names)

    async def _is_exhausted(self, uid: PodUID) -> bool:
        """Return whether a volume is not attached because the node can have no more."""
        for mount in waiting_for_node(self._desired.of_pod(uid), self._boards.devices):
            plugin = mount.plugin
            if isinstance(plugin, StagedPlugin) and await plugin.is_exhausted(mount.spec):
                return True
        return False

    def _drop_desired(self, uid: PodUID) -> None:
        dropped = self._desired.of_pod(uid)
        self._desired.remove_pod(uid)
        self._claims.forget_pod(uid)
        for mount in dropped:
            self._boards.publish_use(mount.key.volume, is_attachable=mount.is_attachable)
            self._reconciler.add_device(mount.key.volume)
            self._reconciler.drop(mount.key)
