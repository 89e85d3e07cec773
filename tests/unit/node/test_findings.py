"""What the node tells of itself has upstream's reasons and texts."""

import pytest

from klet.model.causes import Subject
from klet.node.conditions import PRESSURES
from klet.node.findings import (
    NODE_EVENTS,
    STATUS_REASONS,
    WARNINGS,
    find_cgroup_v1,
    find_reboot,
    find_starting,
    find_status_change,
)


@pytest.mark.parametrize(
    ("finding", "reason", "message"),
    [
        pytest.param(find_starting(), "Starting", "Starting kubelet.", id="the agent starts"),
        pytest.param(find_reboot("n1", "b"), "Rebooted", "Node n1 has been rebooted, boot id: b", id="a reboot"),
        pytest.param(find_status_change("n1", "NodeReady"), "NodeReady", "Node n1 status is now: NodeReady",
                     id="a change of the status"),
        pytest.param(find_cgroup_v1(), "CgroupV1",
                     "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. "
                     "Please migrate to cgroup v2. More information at "
                     "https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1", id="old cgroups"),
    ],
)  # fmt: skip
def test_reasons_and_messages(finding, reason, message):
    assert (finding.subject, finding.decision, finding.message) == (Subject(), reason, message)
    assert finding.decision in NODE_EVENTS


def test_every_condition_has_its_reasons():
    assert {words.event for kind in PRESSURES for words in (kind.present, kind.absent)} < STATUS_REASONS
    assert WARNINGS.isdisjoint(STATUS_REASONS)
