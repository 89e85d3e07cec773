"""The contract of volume plugins with the volume manager."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from klet.api.pod import Pod
from klet.api.volume import Volume
from klet.model.allocation import PodAllocation
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.names import VolumeName, pod_volume_name
from klet.volumes.spec import VolumeSpec


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

    @property
    def uid(self) -> PodUID:
        return PodUID(self.pod.metadata.uid)

    @property
    def volume(self) -> Volume:
        return self.spec.volume


class VolumePlugin(ABC):
    """One kind of volume. Setting up twice, and taking down what is not there, does no harm."""

    name: ClassVar[str]
    requires_remount: ClassVar[bool] = False
    """Its content changes while the pod runs."""
    usage_source: ClassVar[UsageSource | None] = None
    """How it is found what its volumes take; None if nothing is measured."""
    supports_mount_options: ClassVar[bool] = False
    """The mount options of a PersistentVolume have a meaning for it."""

    def unique_name(self, uid: PodUID, name: str) -> VolumeName:
        """Return the name, unique on the node, of what a pod has as `name`. Volumes that pods share share it, too."""
        return pod_volume_name(self.name, uid, name)

    @abstractmethod
    def supports(self, spec: VolumeSpec) -> bool: ...

    @abstractmethod
    def attributes(self, spec: VolumeSpec) -> VolumeAttributes: ...

    @abstractmethod
    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        """Return where it lies on the host; empty for one that only the runtime sees."""

    @abstractmethod
    async def set_up(self, request: MountRequest) -> datetime | None:
        """Set it up; return when its content expires, if it does. A failure is a KletError."""

    @abstractmethod
    async def tear_down(self, uid: PodUID, name: str) -> None: ...


class AttachablePlugin(VolumePlugin):
    """A volume plugin whose volumes a controller attaches, once the node reports them in use."""

    @abstractmethod
    def node_name_of(self, spec: VolumeSpec) -> VolumeName | None:
        """Return what it is called on the whole node, whichever pods use it; None for one that needs no attaching."""

    @abstractmethod
    async def found_name(self, uid: PodUID, name: str) -> VolumeName | None:
        """Return the same for one that a previous run of the agent has set up. A failure is a KletError."""
