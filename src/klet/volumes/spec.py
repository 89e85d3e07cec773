"""A volume as plugins see it (upstream: volume.Spec): one of the pod itself, or a PersistentVolume that it claims."""

from typing import Final

from msgspec import Struct

from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.model.volumes import volume_gid

MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
BLOCK: Final = "Block"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


class SecretName(Struct, frozen=True):
    """A secret that a volume names, in whichever namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class VolumeSpec(Struct, frozen=True):
    """What is mounted for an entry of the pod's volumes."""

    volume: Volume
    """The entry itself. Of a claim it only has the name; what is mounted is the PersistentVolume."""
    persistent: PersistentVolume | None = None
    read_only: bool = False
    """The pod claims it for reading only. Other volumes say that themselves, where they can."""
    is_migrated: bool = False
    """It was one of a kind that a CSI driver has taken over, and is that driver's now. Inline ones never grow."""
    left_label: str = ""
    """The SELinux label that a previous run of the agent mounted it with, as far as that run has left a note of it."""

    @property
    def name(self) -> str:
        """Return its name on disk and in messages (upstream: inner spec name)."""
        return self.volume.name if self.persistent is None else self.persistent.metadata.name

    @property
    def is_block(self) -> bool:
        """Return whether containers have it as a device instead of a directory."""
        return self.persistent is not None and self.persistent.spec.volume_mode == BLOCK

    @property
    def gid(self) -> str:
        """Return the group that can use it, as its PersistentVolume says; empty for all others."""
        return "" if self.persistent is None else volume_gid(self.persistent.metadata.annotations)

    @property
    def is_for_one_pod(self) -> bool:
        """Return whether at most one pod may have it."""
        return self.persistent is not None and self.persistent.spec.access_modes == (READ_WRITE_ONCE_POD,)

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Return the options of its PersistentVolume, sorted. Those of the annotation replace those of the spec."""
        if self.persistent is None:
            return ()
        annotations = self.persistent.metadata.annotations
        if MOUNT_OPTIONS in annotations:
            given: tuple[str, ...] = tuple(annotations[MOUNT_OPTIONS].split(","))
        else:
            given = self.persistent.spec.mount_options
        return tuple(sorted({option for option in given if option}))
