"""Why a volume is not as it should be, in upstream's words. Pure."""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from klet.api.references import ObjectReference
from klet.errors import KletError
from klet.model.causes import Finding, FindingSubject
from klet.model.pods import subject_of
from klet.model.reasons import Reason
from klet.volumes.devices import NodeDevice
from klet.volumes.errors import MapStep, MountStep, StepFailed
from klet.volumes.state import ActualMount, DesiredMount

DECIDER: Final = "volumes.manager"
_NEXT: Final = "try again after a back-off"


def mount_failed(desired: DesiredMount, error: KletError, *, retry_at: datetime) -> Finding:
    step: MountStep | MapStep = error.step if isinstance(error, StepFailed) else MountStep.SET_UP
    reason = Reason.FAILED_MOUNT
    if desired.spec.is_block:
        step = MapStep[step.name]
        # Upstream: the check of the node is the one failure of a block volume with the other reason.
        reason = Reason.FAILED_MOUNT if step is MapStep.NODE_AFFINITY else Reason.FAILED_MAP_VOLUME
    return _failed(desired, reason, f'{step} for volume "{desired.spec.name}" : {error}', retry_at)


def filesystem_mismatch(desired: DesiredMount, error: KletError) -> Finding:
    """Return the finding whose Event is on the PersistentVolume."""
    assert desired.spec.persistent is not None  # only such a volume has one to be on
    meta = desired.spec.persistent.metadata
    return Finding(
        subject=subject_of(desired.pod),
        decider=DECIDER,
        decision=Reason.FAILED_MOUNT_ON_FILESYSTEM_MISMATCH,
        message=f'MountVolume failed for volume "{desired.spec.name}" {error}',
        event_on=ObjectReference(api_version="v1", kind="PersistentVolume", name=meta.name, uid=meta.uid),
    )


def attach_failed(desired: DesiredMount, error: KletError, *, retry_at: datetime) -> Finding:
    message = f'AttachVolume.Attach failed for volume "{desired.spec.name}" : {error}'
    return _failed(desired, Reason.FAILED_ATTACH_VOLUME, message, retry_at)


def not_attached(desired: DesiredMount, error: KletError, *, retry_at: datetime) -> Finding:
    """Return the finding of a volume that the controller has not attached, of which upstream makes no event."""
    message = f'VerifyControllerAttachedVolume.Attach failed for volume "{desired.spec.name}" : {error}'
    return _failed(desired, Reason.VOLUME_NOT_ATTACHED, message, retry_at)


def attached(desired: DesiredMount) -> Finding:
    return _done(
        desired,
        Reason.SUCCESSFUL_ATTACH_VOLUME,
        # Upstream ends it with a blank: its Events are counted by their text.
        f'AttachVolume.Attach succeeded for volume "{desired.spec.name}" ',
    )


def mapped(desired: DesiredMount, *, global_map_path: str, volume_map_path: str) -> tuple[Finding, Finding]:
    start = f'MapVolume.MapPodDevice succeeded for volume "{desired.spec.name}"'
    return (
        _done(desired, Reason.SUCCESSFUL_MOUNT_VOLUME, f'{start} globalMapPath "{global_map_path}"'),
        _done(desired, Reason.SUCCESSFUL_MOUNT_VOLUME, f'{start} volumeMapPath "{volume_map_path}"'),
    )


def expansion_failed(desired: DesiredMount, error: KletError, *, retry_at: datetime) -> Finding:
    message = f'NodeExpandVolume.NodeExpandVolume failed for volume "{desired.spec.name}" : {error}'
    return _failed(desired, Reason.VOLUME_RESIZE_FAILED, message, retry_at)


def expanded(desired: DesiredMount, *, node: str) -> tuple[Finding, ...]:
    """Return the findings of a volume that has grown: one for the pod, one for its claim."""
    message = f'MountVolume.NodeExpandVolume succeeded for volume "{desired.spec.name}" {node}'
    return _for_pod_and_claim(desired, Reason.FILE_SYSTEM_RESIZE_SUCCESSFUL, message)


def read_only_expansion(desired: DesiredMount) -> tuple[Finding, ...]:
    """Return the findings of a volume that cannot grow, because it is mounted for reading only."""
    name = desired.spec.name
    message = f'MountVolume.NodeExpandVolume failed for volume "{name}" requested read-only file system'
    return _for_pod_and_claim(desired, Reason.FILE_SYSTEM_RESIZE_FAILED, message)


def unmount_failed(actual: ActualMount, error: str, *, retry_at: datetime | None) -> Finding:
    """Return the finding of a failed unmount, of which upstream makes no event."""
    what = "UnmapVolume" if actual.is_block else "UnmountVolume"
    return Finding(
        subject=actual.subject,
        decider=DECIDER,
        decision=Reason.FAILED_UNMOUNT,
        message=f'{what}.TearDown failed for volume "{actual.key.volume}" : {error}',
        measurements={"volume": actual.name, "plugin": actual.plugin.name},
        next=_NEXT if retry_at is not None else "its directory stays until it can be removed",
        next_at=retry_at,
    )


def device_failed(device: NodeDevice, error: KletError, *, is_detach: bool, retry_at: datetime) -> Finding:
    """Return the finding of a device that is not unmounted or detached, of which upstream makes no event."""
    what = "UnmapDevice" if device.spec.is_block else "UnmountDevice"
    return Finding(
        subject=FindingSubject(),
        decider=DECIDER,
        decision=Reason.FAILED_DETACH_VOLUME if is_detach else Reason.FAILED_UNMOUNT_DEVICE,
        message=f'{"DetachVolume.Detach" if is_detach else what} failed for volume "{device.name}" : {error}',
        measurements={"volume": device.spec.name, "plugin": device.plugin.name},
        next=_NEXT,
        next_at=retry_at,
    )


def _failed(desired: DesiredMount, reason: Reason, message: str, retry_at: datetime) -> Finding:
    return Finding(
        subject=subject_of(desired.pod),
        decider=DECIDER,
        decision=reason,
        message=message,
        measurements={"volume": desired.spec.name, "plugin": desired.plugin.name},
        next=_NEXT,
        next_at=retry_at,
    )


def _done(desired: DesiredMount, reason: Reason, message: str) -> Finding:
    return Finding(subject=subject_of(desired.pod), decider=DECIDER, decision=reason, message=message)


def _for_pod_and_claim(desired: DesiredMount, reason: Reason, message: str) -> tuple[Finding, ...]:
    found = _done(desired, reason, message)
    ref = desired.spec.persistent.spec.claim_ref if desired.spec.persistent is not None else None
    if ref is None:
        return (found,)
    claim = ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace=ref.namespace, name=ref.name, uid=ref.uid
    )
    return (found, replace(found, event_on=claim))
