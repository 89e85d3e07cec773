"""Which decisions are told to users as Events, and how loudly. What is not named here stays in the journal."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from klet.model.causes import Finding


class EventType(StrEnum):
    """How an Event is meant."""

    NORMAL = "Normal"
    WARNING = "Warning"


_NORMAL: Final = (
    "Starting",
    "NodeReady",
    "NodeNotReady",
    "NodeSchedulable",
    "NodeNotSchedulable",
    "NodeHasSufficientMemory",
    "NodeHasInsufficientMemory",
    "NodeHasNoDiskPressure",
    "NodeHasDiskPressure",
    "NodeHasSufficientPID",
    "NodeHasInsufficientPID",
    "Shutdown",
    "NodeAllocatableEnforced",
    "DeadlineExceeded",
    "SandboxChanged",
    "ResizeStarted",
    "ResizeCompleted",
    "Created",
    "Started",
    "Killing",
    "Pulling",
    "Pulled",
    "SuccessfulAttachVolume",
    "SuccessfulMountVolume",
    "VolumeResizeSuccessful",
    "FileSystemResizeSuccessful",
)
_WARNING: Final = (
    "KubeletSetupFailed",
    "Rebooted",
    "CgroupV1",
    "SystemOOM",
    "ContainerGCFailed",
    "ImageGCFailed",
    "InvalidDiskCapacity",
    "FreeDiskSpaceFailed",
    "InvalidImageID",
    "FailedNodeAllocatableEnforcement",
    "EvictionThresholdMet",
    "PossibleMemoryBackedVolumesOnDisk",
    "CheckLimitsForResolvConf",
    "MissingClusterDNS",
    "DNSConfigForming",
    "Evicted",
    "NodePorts",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "Preempting",
    "ExceededGracePeriod",
    "FailedKillPod",
    "FailedCreatePodContainer",
    "Failed",
    "FailedMount",
    "NetworkNotReady",
    "FailedSync",
    "FailedValidation",
    "FailedToRetrieveImagePullSecret",
    "HostIPsIPFamilyMismatch",
    "FailedCreatePodSandBox",
    "FailedPodSandBoxStatus",
    "FailedPrepareDynamicResources",
    "ResizeError",
    "ResizeDeferred",
    "ResizeInfeasible",
    "LifecycleHTTPFallback",
    "InspectFailed",
    "ErrImageNeverPull",
    "Unhealthy",
    "ProbeWarning",
    "FailedPostStartHook",
    "FailedPreStopHook",
    "FailedAttachVolume",
    "FailedMapVolume",
    "VolumeResizeFailed",
    "FileSystemResizeFailed",
    "FailedMountOnFilesystemMismatch",
    "AlreadyMountedVolume",
    "VolumePermissionChangeInProgress",
)
_TYPES: Final[Mapping[str, EventType]] = {
    **dict.fromkeys(_NORMAL, EventType.NORMAL),
    **dict.fromkeys(_WARNING, EventType.WARNING),
}
_PULLING: Final = "Back-off pulling image"


def event_type(finding: Finding) -> EventType | None:
    """How to tell a finding, or None if it is not told."""
    if finding.decision == "BackOff":
        # Waiting for an image is usual; a container that keeps failing is not.
        return EventType.NORMAL if finding.message.startswith(_PULLING) else EventType.WARNING
    return _TYPES.get(finding.decision)
