"""What the node reports of itself has upstream's reasons and texts."""

import pytest

from klet.host.machine.info import MachineInfo
from klet.model.causes import FindingSubject
from klet.model.reasons import EventType, Reason
from klet.node.conditions import PRESSURES
from klet.node.findings import find_cgroup_v1, find_reboot, find_start, find_starting, find_status_change


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


NO_NOSWAP = (
    "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped "
    "to disk and should no longer be considered secure."
)


@pytest.mark.parametrize(
    ("machine", "noswap", "reasons"),
    [
        pytest.param({}, True, ["Starting"], id="nothing to warn of"),
        pytest.param({}, False, ["Starting"], id="an old kernel without swap"),
        pytest.param({"has_swap": True}, True, ["Starting"], id="swap, and volumes can be kept out of it"),
        pytest.param({"has_swap": True}, False, ["Starting", "PossibleMemoryBackedVolumesOnDisk"],
                     id="swap, and volumes cannot be kept out of it"),
        pytest.param({"cgroup_version": 1, "has_swap": True}, False,
                     ["Starting", "CgroupV1", "PossibleMemoryBackedVolumesOnDisk"], id="all at once"),
    ],
)  # fmt: skip
def test_what_a_node_reports_at_its_start(machine, noswap, reasons):
    found = tuple(find_start(MachineInfo(cpus=1, memory=1, **machine), noswap=noswap))
    assert [finding.decision for finding in found] == reasons


def test_volumes_that_may_be_swapped_out_are_a_warning_in_upstreams_words():
    [_, found] = find_start(MachineInfo(cpus=1, memory=1, has_swap=True), noswap=False)
    assert (found.subject, found.message) == (FindingSubject(), NO_NOSWAP)
    assert found.decision.event_type is EventType.WARNING
