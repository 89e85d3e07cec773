"""What a VolumeAttachment says: attached, refused, or not yet. Pure."""

from typing import Final

from klet.api.storage import VolumeAttachment
from klet.volumes.errors import VolumeSetupError

EXHAUSTED: Final = 8
"""The gRPC code ResourceExhausted, as `status.attachError.errorCode` has it."""


def check_attached(attachment: VolumeAttachment, handle: str) -> None:
    """Raise VolumeSetupError if the volume is not attached; it says why."""
    if attachment.metadata.deletion_timestamp is not None:
        raise VolumeSetupError("volume attachment is being deleted")
    if attachment.status.attached:
        return
    if attachment.status.attach_error is not None:
        raise VolumeSetupError(attachment.status.attach_error.message)
    raise VolumeSetupError(f"volume {handle} is not attached for volume attachment {attachment.metadata.name}")


def is_exhausted(attachment: VolumeAttachment) -> bool:
    """Return whether it is not attached because the node can have no more volumes."""
    error = attachment.status.attach_error
    return error is not None and error.error_code == EXHAUSTED
