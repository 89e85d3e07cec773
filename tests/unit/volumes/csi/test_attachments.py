"""What a VolumeAttachment says."""

import pytest

from klet.api.meta import ObjectMeta
from klet.api.storage import VolumeAttachment, VolumeAttachmentStatus, VolumeError
from klet.api.times import Time
from klet.volumes.csi.attachments import check_attached, is_exhausted
from klet.volumes.errors import VolumeSetupError


def attachment(*, deleted=False, attached=False, error=None):
    instant = Time(2030, 1, 1) if deleted else None
    return VolumeAttachment(
        metadata=ObjectMeta(name="csi-1", deletion_timestamp=instant),
        status=VolumeAttachmentStatus(attached=attached, attach_error=error),
    )


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param(attachment(attached=True), None, id="attached"),
        pytest.param(attachment(attached=True, deleted=True), "volume attachment is being deleted", id="deleted"),
        pytest.param(attachment(error=VolumeError(message="disk is gone")), "disk is gone", id="refused"),
        pytest.param(attachment(), "volume vol is not attached for volume attachment csi-1", id="not yet"),
    ],
)
def test_whether_it_is_attached(found, error):
    if error is None:
        check_attached(found, "vol")
        return
    with pytest.raises(VolumeSetupError) as caught:
        check_attached(found, "vol")
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(None, False, id="no error"),
        pytest.param(VolumeError(message="no"), False, id="no code"),
        pytest.param(VolumeError(error_code=8), True, id="ResourceExhausted"),
        pytest.param(VolumeError(error_code=13), False, id="another code"),
    ],
)
def test_whether_the_node_can_have_no_more(error, expected):
    assert is_exhausted(attachment(error=error)) is expected
