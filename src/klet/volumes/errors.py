"""What can go wrong with a volume.

VolumeSetupError
├── NoPlugin      a kind of volume that this node does not know
├── ClaimError    a claim that leads to no volume for this pod
├── StepFailed    a step of mounting other than the set-up failed
├── LabelsDiffer  containers of a pod have several SELinux labels for it
├── UncertainProgress   it may have been done all the same: it is undone once nobody wants it
├── TransientFailure    nothing was tried, because something that it needs is not there yet
├── FilesystemMismatch  the device has another filesystem than the volume says
├── BadPath       a file name that a payload must not have
├── WaitFailed    not everything was mounted, or unmounted, in time
│   └── AttachLimitReached   … because the node can have no more volumes
└── OrphanKept    a pod's directory that cannot be removed yet

Of an operation that a plugin was asked for, every other KletError is final: it has not been done.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from klet.errors import KletError
from klet.host.errors import file_error

TIMED_OUT = "context deadline exceeded"


class VolumeSetupError(KletError):
    """Base of the errors of volumes."""


class NoPlugin(VolumeSetupError):
    """A kind of volume that this node does not know."""

    def __init__(self, volume: str) -> None:
        super().__init__(f'failed to get Plugin from volumeSpec for volume "{volume}" err=no volume plugin matched')


class ClaimError(VolumeSetupError):
    """A claim that leads to no volume for this pod."""


class MountStep(StrEnum):
    """Where mounting failed, as Events begin."""

    NODE_AFFINITY = "MountVolume.NodeAffinity check failed"
    NEW_MOUNTER = "MountVolume.NewMounter initialization failed"
    MOUNT_OPTIONS = "MountVolume.MountOptionSupport check failed"
    WAIT_FOR_ATTACH = "MountVolume.WaitForAttach failed"
    DEVICE_PATH = "MountVolume.GetDeviceMountPath failed"
    MOUNT_DEVICE = "MountVolume.MountDevice failed"
    SET_UP = "MountVolume.SetUp failed"
    EXPAND = "MountVolume.Setup failed while expanding volume"


class MapStep(StrEnum):
    """The same of block volumes, step by step under the same names."""

    NODE_AFFINITY = "MapVolume.NodeAffinity check failed"
    NEW_MOUNTER = "MapVolume.NewBlockVolumeMapper initialization failed"
    MOUNT_OPTIONS = "MapVolume.MountOptionSupport check failed"
    WAIT_FOR_ATTACH = "MapVolume.WaitForAttach failed"
    DEVICE_PATH = "MapVolume.GetGlobalMapPath failed"
    MOUNT_DEVICE = "MapVolume.SetUpDevice failed"
    SET_UP = MOUNT_DEVICE
    MAP_POD_DEVICE = "MapVolume.MapPodDevice failed"
    MAP_BLOCK_VOLUME = "MapVolume.MapBlockVolume failed"
    EXPAND = "MapVolume.MarkVolumeAsMounted failed while expanding volume"


class StepFailed(VolumeSetupError):
    """A step of mounting failed. Any other error is one of the set-up."""

    def __init__(self, step: MountStep | MapStep, message: str) -> None:
        super().__init__(message)
        self.step = step


class UncertainProgress(VolumeSetupError):
    """It may have been done all the same: a timeout, or an error of gRPC after which a driver may go on."""


class TransientFailure(VolumeSetupError):
    """Nothing was tried, because something is not there yet: the driver, or the object that says how."""


class FilesystemMismatch(VolumeSetupError):
    """The device has another filesystem than the volume says."""


class LabelsDiffer(VolumeSetupError):
    """Containers of a pod have several SELinux labels for one volume."""

    def __init__(self, labels: Iterable[str]) -> None:
        super().__init__(f"multiple SELinux labels found: {','.join(sorted(labels))}")


class BadPath(VolumeSetupError):
    """A file name that a payload must not have."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"invalid path: {rule}")


class WaitFailed(VolumeSetupError):
    """Volumes that are not as they should be. Of a mere timeout upstream makes no event."""

    def __init__(self, message: str, *, is_timeout: bool) -> None:
        super().__init__(message)
        self.is_timeout = is_timeout


class AttachLimitReached(WaitFailed):
    """The node can have no more volumes: the pod has to go to another one."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Node has reached its volume attachment limit, rejecting pod. {message}", is_timeout=False)


class OrphanKept(VolumeSetupError):
    """A pod's directory that cannot be removed yet."""


@contextmanager
def doing(action: str, path: Path) -> Iterator[None]:
    """Translate errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise file_error(action, path, error) from error
