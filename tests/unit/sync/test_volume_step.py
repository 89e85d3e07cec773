"""What a pass of a pod makes of volumes that it does not have."""

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.journal.memory import MemoryJournal
from klet.model.reasons import Reason
from klet.sync.preparation_steps import VolumeStep
from klet.testing.clock import ManualClock
from klet.volumes.errors import AttachLimitReached, WaitFailed

POD = convert(Pod, {"metadata": {"name": "p", "uid": "u"}, "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}})


class Volumes:
    """Volumes that do not come."""

    def __init__(self, error):
        self.error = error

    async def until_mounted(self, pod):
        assert pod is POD
        raise self.error


@pytest.mark.parametrize(
    ("error", "decision", "rejects"),
    [
        pytest.param(
            WaitFailed("late", is_timeout=True), Reason.VOLUMES_NOT_MOUNTED, False, id="a timeout is no Event"
        ),
        pytest.param(WaitFailed("bad", is_timeout=False), Reason.FAILED_MOUNT, False, id="an error is an Event"),
        pytest.param(AttachLimitReached("full"), None, True, id="a node that can have no more volumes rejects the pod"),
    ],
)
async def test_the_end_of_the_wait(error, decision, rejects):
    journal = MemoryJournal(clock=ManualClock())
    step = VolumeStep(volumes=Volumes(error), held=None, recorder=journal)
    held = await step.prepare(POD, cause=None)
    recorded = [cause.finding.decision for cause in journal.all()]
    assert recorded == ([] if decision is None else [decision])
    assert (held.rejection is not None) == rejects
    if rejects:
        assert held.rejection.reason is Reason.VOLUME_ATTACHMENT_LIMIT_EXCEEDED
        assert held.rejection.message == "Node has reached its volume attachment limit, rejecting pod. full"
