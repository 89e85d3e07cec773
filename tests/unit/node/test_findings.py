"""What the node reports of itself has upstream's reasons and texts."""

import pytest

from klet.model.causes import FindingSubject
from klet.model.reasons import EventType, Reason
from klet.node.conditions import PRESSURES
from klet.node.findings import find_cgroup_v1, find_reboot, find_starting, find_status_change


@pytest.mark.parametrize(
    ("finding", "reason", "event_type", "message"),
    [
        pytest.param(find_starting(), "Starting", EventType.NORMAL, "Starting kubelet.", id="the agent starts"),
        pytest.param(find_reboot("n1", "b"), "Rebooted", EventType.WARNING,
                     "Node n1 has been rebooted, boot id: b", id="a reboot"),
        pytest.param(find_status_change("n1", Reason.NODE_READY), "NodeReady", EventType.NORMAL,
                     "Node n1 status is now: NodeReady", id="a change of the status"),
        pytest.param(find_cgroup_v1(), "CgroupV1", EventType.WARNING,
                     "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. "
                     "Please migrate to cgroup v2. More information at "
                     "https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1", id="old cgroups"),
    ],
)  # fmt: skip
def test_reasons_and_messages(finding, reason, event_type, message):
    assert (finding.subject, finding.decision, finding.message) == (FindingSubject(), reason, message)
    assert finding.decision.event_type is event_type


def test_every_change_of_a_condition_is_an_event():
    events = [words.event for kind in PRESSURES for words in (kind.present, kind.absent)]
    events += [Reason.NODE_READY, Reason.NODE_NOT_READY, Reason.NODE_SCHEDULABLE, Reason.NODE_NOT_SCHEDULABLE]
    assert {event.event_type for event in events} == {EventType.NORMAL}
    assert len(set(events)) == 10
