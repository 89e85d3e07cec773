"""The desired and the actual state of the world of volumes.

The boards are written by the volume manager and its reconciler only. What to do next: `steps.py`.
"""

import asyncio
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast
from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.model.allocation import PodAllocation
from klet.model.causes import FindingSubject
from klet.model.objects import ObjectRef, volume_objects
from klet.model.pods import PodUID
from klet.volumes.claims import ClaimUse
from klet.volumes.devices import DeviceBoard
from klet.volumes.names import MountKey, VolumeName
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.pod_waiters import PodWaiters
from klet.volumes.spec import VolumeSpec

MOST_ERRORS: Final = 10
"""An error is noted while a pod has no more than these."""


class DesiredMount(Struct, frozen=True, kw_only=True):
    """A volume that a pod should have."""

    key: MountKey
    pod: Pod
    allocation: PodAllocation
    spec: VolumeSpec
    plugin: VolumePlugin
    names: frozenset[str]
    """What the pod calls it. Several names are one volume if they stand for one claim."""
    claim: ClaimUse | None = None
    """The claim that it stands for."""
    claim_size: Quantity | None = None
    """What the status of the claim said of its size when it was looked up last."""
    is_staged: bool = False
    """The node has a device of it, which pods share."""
    has_device_stage: bool = False
    """The device is mounted or staged for all pods first."""
    is_attachable: bool | None = False
    """None while that is not known."""
    is_expandable: bool = False
    """Its filesystem has to follow when it grows."""
    remounts: bool = False
    """It is set up again while the pod runs."""
    is_labelled: bool = False
    """It is mounted with the SELinux label of its pod, so pods with different ones cannot share it."""
    label: str = ""
    """That label; empty if the pod has none."""
    meant_label: str | None = None
    """The label that it would be mounted with whatever its access modes; None if its plugin or node cannot do that."""
    revision: int = 0
    """Goes up with everything that may have changed the volume's content."""


class MountState(StrEnum):
    """What is known of a volume of a pod. One that is not mounted has no entry."""

    MOUNTED = "mounted"
    UNCERTAIN = "uncertain"


class ActualMount(Struct, frozen=True, kw_only=True):
    """A volume that a pod has, or may have."""

    key: MountKey
    plugin: VolumePlugin
    name: str
    state: MountState
    subject: FindingSubject
    is_block: bool = False
    is_reconstructed: bool = False
    """A previous run of the agent had it, and this one has not mounted it yet."""
    is_unreadable: bool = False
    """What a previous run left of it leads to no volume: it is torn down by its name, once."""
    revision: int = 0
    """The revision of the desired mount that it was last set up from."""
    refresh_at: float | None = None
    """When to bring it up to date even if no change is known, on the monotonic clock."""


def has_changed(before: DesiredMount, after: DesiredMount) -> bool:
    """Return whether a pod differs in what its volumes may show."""
    old, new = before.pod, after.pod
    return (
        old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
        or old.spec != new.spec
        or before.allocation != after.allocation
    )


class PodsOfVolumes:
    """Which pods have each volume, in the order in which they came: most volumes belong to one pod alone."""

    def __init__(self) -> None:
        self._pods: dict[VolumeName, dict[PodUID, None]] = {}

    def of(self, name: VolumeName) -> tuple[PodUID, ...]:
        return tuple(self._pods.get(name, ()))

    def add(self, key: MountKey) -> None:
        self._pods.setdefault(key.volume, {})[key.uid] = None

    def discard(self, key: MountKey) -> None:
        pods = self._pods.get(key.volume, {})
        pods.pop(key.uid, None)
        if not pods:
            self._pods.pop(key.volume, None)


class DesiredState:
    """What the node's pods should have."""

    def __init__(self) -> None:
        self._mounts: dict[PodUID, dict[MountKey, DesiredMount]] = {}
        self._pods = PodsOfVolumes()
        self._users: dict[ObjectRef, set[MountKey]] = {}
        self._errors: dict[PodUID, set[str]] = {}
        self._reported: frozenset[VolumeName] = frozenset()

    def get(self, key: MountKey) -> DesiredMount | None:
        return self._mounts.get(key.uid, {}).get(key)

    def of_pod(self, uid: PodUID) -> tuple[DesiredMount, ...]:
        return tuple(self._mounts.get(uid, {}).values())

    def all(self) -> Iterable[DesiredMount]:
        return (mount for mounts in self._mounts.values() for mount in mounts.values())

    def of_volume(self, name: VolumeName) -> list[DesiredMount]:
        """Return it as the pods that should have it should have it."""
        return [self._mounts[uid][MountKey(name, uid)] for uid in self._pods.of(name)]

    def put(self, mount: DesiredMount) -> None:
        self._mounts.setdefault(mount.key.uid, {})[mount.key] = mount
        self._pods.add(mount.key)
        for ref in volume_objects(mount.spec.volume, mount.pod):
            self._users.setdefault(ref, set()).add(mount.key)

    def touch(self, key: MountKey) -> None:
        """Raise the revision: something that the volume shows has changed."""
        mount = self._mounts[key.uid][key]
        self._mounts[key.uid][key] = replace(mount, revision=mount.revision + 1)

    def users_of(self, ref: ObjectRef) -> frozenset[MountKey]:
        """Return the volumes that show an object."""
        return frozenset(self._users.get(ref, ()))

    def remove_pod(self, uid: PodUID) -> None:
        for mount in self._mounts.pop(uid, {}).values():
            self._pods.discard(mount.key)
            for ref in volume_objects(mount.spec.volume, mount.pod):
                users = self._users.get(ref, set())
                users.discard(mount.key)
                if not users:
                    self._users.pop(ref, None)
        self._errors.pop(uid, None)
        if self._reported:
            self._reported = frozenset(name for name in self._reported if self._pods.of(name))

    def report(self, names: Iterable[str]) -> tuple[MountKey, ...]:
        """Keep which volumes the node's status reports in use; return those that it did not report before.

        Only desired volumes are kept: one that comes later must be reported again, even if an older status names it.
        """
        in_use = frozenset(names)
        reported = [
            mount.key for mount in self.all() if mount.is_attachable is not False and mount.key.volume in in_use
        ]
        before, self._reported = self._reported, frozenset(key.volume for key in reported)
        return tuple(key for key in reported if key.volume not in before)

    def is_reported(self, name: VolumeName) -> bool:
        return name in self._reported

    def add_error(self, uid: PodUID, error: str) -> None:
        errors = self._errors.setdefault(uid, set())
        if len(errors) <= MOST_ERRORS:
            errors.add(error)

    def pop_errors(self, uid: PodUID) -> tuple[str, ...]:
        return tuple(sorted(self._errors.pop(uid, ())))


class ActualState:
    """What the node's pods have, or may have."""

    def __init__(self) -> None:
        self._mounts: dict[PodUID, dict[MountKey, ActualMount]] = {}
        self._pods = PodsOfVolumes()

    def get(self, key: MountKey) -> ActualMount | None:
        return self._mounts.get(key.uid, {}).get(key)

    def of_pod(self, uid: PodUID) -> tuple[ActualMount, ...]:
        return tuple(self._mounts.get(uid, {}).values())

    def all(self) -> Iterable[ActualMount]:
        return (mount for mounts in self._mounts.values() for mount in mounts.values())

    def put(self, mount: ActualMount) -> None:
        self._mounts.setdefault(mount.key.uid, {})[mount.key] = mount
        self._pods.add(mount.key)

    def remove(self, key: MountKey) -> None:
        mounts = self._mounts.get(key.uid, {})
        mounts.pop(key, None)
        self._pods.discard(key)
        if not mounts:
            self._mounts.pop(key.uid, None)

    def has(self, name: VolumeName) -> bool:
        """Return whether a pod has it, or may have it."""
        return bool(self._pods.of(name))

    def is_elsewhere(self, key: MountKey) -> bool:
        """Return whether another pod has the same volume, or may have it."""
        return any(uid != key.uid for uid in self._pods.of(key.volume))

    def is_mounted(self, key: MountKey) -> bool:
        mount = self.get(key)
        return mount is not None and mount.state is MountState.MOUNTED


class VolumeBoards(Struct, frozen=True, kw_only=True):
    """What the volume manager, its reconciler and their operations share."""

    desired: DesiredState
    actual: ActualState
    devices: DeviceBoard
    waiters: PodWaiters
    leaving: set[PodUID]
    """Pods whose volumes are being unmounted: a late sync must not bring them back."""
    pods_are_known: asyncio.Event
    """All sources have been read: what belongs to no pod now belongs to none."""
    in_use_changes: Broadcast[VolumeName]
    """Attachable volumes that came into use or may be out of it."""

    def publish_use(self, name: VolumeName, *, is_attachable: bool | None) -> None:
        if is_attachable is not False:
            self.in_use_changes.send(name)


def build_boards(clock: Clock) -> VolumeBoards:
    return VolumeBoards(
        desired=DesiredState(),
        actual=ActualState(),
        devices=DeviceBoard(),
        waiters=PodWaiters(clock=clock),
        leaving=set(),
        pods_are_known=asyncio.Event(),
        in_use_changes=Broadcast[VolumeName](),
    )
