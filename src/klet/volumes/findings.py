"""Why a volume is not as it should be, in upstream's words. Pure."""

from datetime import datetime
from typing import Final

from klet.errors import KletError
from klet.model.causes import Finding
from klet.model.pods import subject_of
from klet.model.reasons import Reason
from klet.volumes.errors import MountStep, StepFailed
from klet.volumes.state import ActualMount, DesiredMount

DECIDER: Final = "volumes.manager"
_NEXT: Final = "try again after a back-off"


def mount_failed(desired: DesiredMount, error: KletError, *, retry_at: datetime) -> Finding:
    step = error.step if isinstance(error, StepFailed) else MountStep.SET_UP
    return Finding(
        subject=subject_of(desired.pod),
        decider=DECIDER,
        decision=Reason.FAILED_MOUNT,
        message=f'{step} for volume "{desired.spec.name}" : {error}',
        measurements={"volume": desired.spec.name, "plugin": desired.plugin.name},
        next=_NEXT,
        next_at=retry_at,
    )


def unmount_failed(actual: ActualMount, error: str, *, retry_at: datetime) -> Finding:
    """Return the finding of a failed unmount, of which upstream makes no event."""
    return Finding(
        subject=actual.subject,
        decider=DECIDER,
        decision=Reason.FAILED_UNMOUNT,
        message=f'UnmountVolume.TearDown failed for volume "{actual.key.volume}" : {error}',
        measurements={"volume": actual.name, "plugin": actual.plugin.name},
        next=_NEXT,
        next_at=retry_at,
    )
