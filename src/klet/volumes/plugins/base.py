"""The contract of volume plugins with the volume manager.

A `VolumePlugin` has volumes of one stage: each pod's is set up for that pod. A `StagedPlugin` may have volumes of two
stages: a device that the node has once (attached, then mounted or staged), and what each pod gets of it.

The class of an error that leaves a plugin says what may have happened (upstream: volume/util/types):
`UncertainProgress` that it may have been done after all, so it is undone when no longer wanted; `TransientFailure`
that nothing has been tried; every other KletError that it is final: it has not been done. The outermost error counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Protocol

from msgspec import Struct

from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.volume import Volume
from klet.host.mountinfo import MountEntry
from klet.model.allocation import PodAllocation
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import VolumeName, pod_volume_name
from klet.volumes.spec import VolumeSpec
from klet.volumes.usage import fs_group, fs_user


class PluginUser(Protocol):
    """Asks plugins for volumes."""

    def plugin_changed(self, name: str) -> None:
        """Ask a plugin again: its answers may be others now."""
        ...


class VolumeAttributes(Struct, frozen=True):
    """How containers may mount a volume."""

    read_only: bool = False
    managed: bool = False
    """The agent made it, so its label may be changed."""
    relabels: bool = False


GENERATED_FILES = VolumeAttributes(read_only=True, managed=True, relabels=True)
"""Of volumes whose files the agent generates: the pod must not change them."""


class MountRequest(Struct, frozen=True, kw_only=True):
    """A volume of a pod that is to be set up, or brought up to date."""

    pod: Pod
    allocation: PodAllocation
    """What the pod has been given: files may show it, and memory is limited by it."""
    spec: VolumeSpec
    is_remount: bool = False
    device_path: str = ""
    """What `wait_for_attach` returned; empty for a volume that is not attachable."""
    device_mount_path: str = ""
    """Where the device is mounted; empty for a volume without device stage."""
    label: str = ""
    """The SELinux label to mount it with (`context="…"`); empty without one."""

    @property
    def uid(self) -> PodUID:
        return PodUID(self.pod.metadata.uid)

    @property
    def volume(self) -> Volume:
        return self.spec.volume

    @property
    def fs_group(self) -> int | None:
        """Return the group of the pod's volumes."""
        return fs_group(self.pod)

    @property
    def fs_user(self) -> int | None:
        """Return the user that every container of the pod runs as; None if there is not one for all."""
        return fs_user(self.pod)


class StageRequest(Struct, frozen=True, kw_only=True):
    """A device that is to be attached, mounted or staged, for the first pod that needs it."""

    pod: Pod
    spec: VolumeSpec
    device_path: str = ""
    """To `wait_for_attach`: what the node's status has. To all others: what `wait_for_attach` returned."""
    mount_path: str = ""
    """Where to mount it (`device_mount_path`); of a block volume where pods' links to it are (`global_map_path`)."""
    label: str = ""
    """The SELinux label to mount it with; empty without one."""

    @property
    def uid(self) -> PodUID:
        return PodUID(self.pod.metadata.uid)

    @property
    def fs_group(self) -> int | None:
        """Return the group of the pod's volumes."""
        return fs_group(self.pod)


class ExpandRequest(Struct, frozen=True, kw_only=True):
    """A volume that has grown, and whose filesystem or device is to follow."""

    spec: VolumeSpec
    new_size: Quantity
    old_size: Quantity
    device_path: str = ""
    mount_path: str = ""
    """Where the pod has it; of a block volume the device."""
    device_mount_path: str = ""
    """Where the device is mounted, or staged; empty for a volume without device stage."""


class ExpansionOutcome(StrEnum):
    """What became of growing a volume."""

    FINISHED = "finished"
    NOT_SUPPORTED = "not supported"
    """By this volume or its driver."""
    IN_USE = "in use"
    """It grows only while no pod uses it (gRPC code FailedPrecondition): it is not tried again while one does."""
    INFEASIBLE = "infeasible"
    """It will never reach that size (InvalidArgument, OutOfRange, NotFound)."""
    FAILED = "failed"
    """Any other error of the driver or the tool, a timeout included."""
    TRANSIENT = "transient"
    """Nothing was tried: the driver is not registered."""


class Expansion(Struct, frozen=True):
    """The end of growing a volume."""

    outcome: ExpansionOutcome
    error: str = ""
    """Why it did not grow, complete as it is reported."""


class LeftVolume(Struct, frozen=True, kw_only=True):
    """The directory of a volume that a previous run of the agent left in that of its pod."""

    uid: PodUID
    name: str
    """That of the directory."""
    path: Path
    """`pods/<uid>/volumes/<plugin>/<name>`; of a block volume the link `pods/<uid>/volumeDevices/<plugin>/<name>`.
    Looking at it may hang (NFS); the mount table never does."""
    is_block: bool = False
    mounts: Sequence[MountEntry] = ()
    """The mount table of this machine, once read for all of them."""


class VolumePlugin(ABC):
    """One kind of volume. Setting up twice, and taking down what is not there, does no harm."""

    name: str
    """`vendor/kind`. Of the class, except for flexVolume, which has one plugin for each driver."""
    requires_remount: ClassVar[bool] = False
    """Its content changes while the pod runs."""
    usage_source: UsageSource | None = None
    """How it is found what its volumes take; None if nothing is measured."""
    supports_mount_options: ClassVar[bool] = False
    """The mount options of a PersistentVolume have a meaning for it."""
    supports_block: ClassVar[bool] = False
    """Containers can have its volumes as devices (`volumeDevices`). Then it is a StagedPlugin."""

    def unique_name(self, uid: PodUID, name: str) -> VolumeName:
        """Return the name, unique on the node, of what a pod has as `name`."""
        return pod_volume_name(self.name, uid, name)

    def remounts(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - CSI: decided by the driver
        """Return whether this one is set up again while the pod runs (CSI: requiresRepublish)."""
        return self.requires_remount

    def supports_label(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - CSI: decided by the driver
        """Return whether this one can be mounted with a SELinux label (CSI: seLinuxMount)."""
        return False

    @abstractmethod
    def supports(self, spec: VolumeSpec) -> bool:
        """Return whether it is of this kind. At most one plugin returns True."""

    @abstractmethod
    def attributes(self, spec: VolumeSpec) -> VolumeAttributes: ...

    @abstractmethod
    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        """Return where it lies on the host; empty for one that only the runtime sees."""

    @abstractmethod
    async def set_up(self, request: MountRequest) -> datetime | None:
        """Set it up; return when its content expires, if it does. A failure is a KletError."""

    @abstractmethod
    async def tear_down(self, uid: PodUID, name: str) -> None:
        """Take it down, by the name of its directory: it may be a previous run of the agent that has set it up."""

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        """Return what a previous run of the agent has set up, from the disk and the mount table alone.

        It is enough to take it down and to name it. A failure is a KletError: then it is only ever torn down.
        """
        return VolumeSpec(Volume(name=left.name))


class StagedPlugin(VolumePlugin):
    """A kind with volumes that the node has once, as devices, however many pods use them.

    The order of calls for a filesystem: wait_for_attach, mount_device, set_up; then tear_down for each pod, and
    unmount_device after the last. For a block volume: wait_for_attach, set_up_device, map_pod_device; then
    unmap_pod_device for each pod, and tear_down_device after the last. Each may be called again after any failure, and
    after a restart of the agent. The manager never runs two for one volume at once, except those of different pods
    that end (`tear_down`, `unmap_pod_device`).
    """

    @abstractmethod
    def device_name(self, spec: VolumeSpec) -> str:
        """Return what distinguishes its device from all others of this plugin (upstream: GetVolumeName).

        Only called for one that is attachable or device-mountable. A failure is a KletError.
        """

    def is_attachable(self, spec: VolumeSpec) -> bool | None:  # noqa: ARG002 - not by default
        """Return whether it has to be attached to the node; None while that is not known.

        The answer may change (CSI: the CSIDriver): `VolumeManager.plugin_changed` has it asked again.
        """
        return False

    def is_device_mountable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - all by default
        """Return whether it has a device stage. Needs no API server."""
        return True

    def volume_name(self, spec: VolumeSpec) -> VolumeName:
        """Return the name of the device that is unique on the node: that of volumesInUse and volumesAttached."""
        return VolumeName(f"{self.name}/{self.device_name(spec)}")

    async def wait_for_attach(self, request: StageRequest) -> str:
        """Return the path of the attached device (CSI: the name of its VolumeAttachment). Only for attachable ones.

        Called for each mount and remount of a pod, also when the device is mounted. A failure changes no state.
        """
        return request.device_path

    async def is_exhausted(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - none by default
        """Return whether it is not attached because the node can have no more volumes (CSI: ResourceExhausted)."""
        return False

    async def attach(self, spec: VolumeSpec, *, node: str) -> str:  # noqa: ARG002 - none by default
        """Attach it from here, where no controller does (enableControllerAttachDetach: false); return its path."""
        raise VolumeSetupError("attaching volumes from the kubelet is not supported")

    async def detach(self, name: VolumeName, *, node: str) -> None:  # noqa: ARG002 - none by default
        """Detach what `attach` has attached."""
        raise VolumeSetupError("detaching volumes from the kubelet is not supported")

    def device_mount_path(self, spec: VolumeSpec) -> str:
        """Return where its device is mounted for all pods. A failure is a KletError."""
        raise VolumeSetupError(f"volume {spec.name} has no device to mount")

    async def find_devices(self, mounts: Sequence[MountEntry]) -> Sequence[VolumeSpec]:  # noqa: ARG002 - none
        """Return the devices that a previous run of the agent has mounted or staged, or has begun to, a spec for each.

        From the disk and the mount table alone, also where no pod has a directory of it any more: a run that was
        killed between the last `tear_down` and `unmount_device` leaves such ones. A spec is enough to name the device
        and for `device_mount_path` or `global_map_path` (`spec.is_block`). One that cannot be read is logged.
        """
        return ()

    async def mount_device(self, request: StageRequest) -> None:
        """Mount the device for all pods (CSI: stage)."""
        raise VolumeSetupError(f"volume {request.spec.name} has no device to mount")

    async def unmount_device(self, mount_path: str, *, device_path: str) -> None:
        """Unmount it after the last pod (CSI: unstage). What is not there does no harm."""
        raise VolumeSetupError(f"no device is mounted at {mount_path} by this plugin ({device_path})")

    # Block volumes. The manager makes and removes what every kind has: the bind of the device at
    # `<global_map_path>/<pod UID>`, the loop device that locks it, and the pod's link to it.

    def global_map_path(self, spec: VolumeSpec) -> str:
        """Return the directory of the devices that pods have of it. A failure is a KletError."""
        raise VolumeSetupError(f"volume {spec.name} cannot be a block volume")

    async def set_up_device(self, request: StageRequest) -> str:  # noqa: ARG002 - nothing by default
        """Stage the device for all pods; return where, empty if nowhere."""
        return ""

    async def map_pod_device(self, request: StageRequest) -> str:
        """Publish it for one pod; return the path of the device, empty if it is that of `request`."""
        raise VolumeSetupError(f"volume {request.spec.name} cannot be a block volume")

    async def unmap_pod_device(self, uid: PodUID, name: str) -> None:
        """Take back what `map_pod_device` did, by the name of the pod's link (which is that of the spec)."""

    async def tear_down_device(self, name: str, *, map_path: str, device_path: str) -> None:
        """Take back what `set_up_device` did, by the name of the spec. What is not there does no harm."""

    # Volumes that grow.

    def is_expandable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - none by default
        """Return whether something has to be done on the node when it has grown."""
        return False

    async def expand(self, request: ExpandRequest) -> Expansion:  # noqa: ARG002 - none by default
        """Grow the filesystem or the device. A KletError counts as FAILED, a TransientFailure as TRANSIENT."""
        return Expansion(ExpansionOutcome.NOT_SUPPORTED)
