"""The status that is written to the API, and when a pod may go."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from klet.api.pod import PodCondition, PodResourceClaimStatus, PodStatus
from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.api.times import Time
from klet.status.api_status import may_be_deleted, merge_status, status_to_write
from klet.testing.builders import make_pod

BEFORE = Time.of(datetime(2026, 1, 1, tzinfo=UTC))
NOW = Time.of(datetime(2026, 1, 2, tzinfo=UTC))


def condition(kind, status="True", **fields):
    return PodCondition(type=kind, status=status, last_transition_time=fields.pop("since", BEFORE), **fields)


READY, CONTAINERS = condition("Ready"), condition("ContainersReady")
GATE = condition("example.com/gate")
TARGET = condition("DisruptionTarget", reason="TerminationByKubelet")
FAILED = {"reason": "PodFailed", "since": NOW}


@pytest.mark.parametrize(
    ("old", "new", "may_run", "merged"),
    [
        pytest.param(
            PodStatus(phase="Running"),
            PodStatus(phase="Running", conditions=(READY,)),
            True,
            PodStatus(phase="Running", conditions=(READY,)),
            id="own conditions are added",
        ),
        pytest.param(
            PodStatus(phase="Running", conditions=(READY, GATE)),
            PodStatus(phase="Running", conditions=(condition("Ready", "False"),)),
            True,
            PodStatus(phase="Running", conditions=(GATE, condition("Ready", "False"))),
            id="conditions of others stay and come first",
        ),
        pytest.param(
            PodStatus(phase="Running"),
            PodStatus(phase="Running", conditions=(GATE,)),
            True,
            PodStatus(phase="Running"),
            id="a condition of others is not written for them",
        ),
        pytest.param(
            PodStatus(phase="Running", resource_claim_statuses=(PodResourceClaimStatus(name="c"),)),
            PodStatus(phase="Running"),
            True,
            PodStatus(phase="Running", resource_claim_statuses=(PodResourceClaimStatus(name="c"),)),
            id="claim statuses are the API's",
        ),
        pytest.param(
            PodStatus(phase="Running", reason="r", message="m"),
            PodStatus(phase="Failed", reason="Evicted", message="gone"),
            True,
            PodStatus(phase="Running", reason="r", message="m"),
            id="a pod has not ended while containers may run",
        ),
        pytest.param(
            PodStatus(phase="Running"),
            PodStatus(phase="Succeeded"),
            False,
            PodStatus(phase="Succeeded"),
            id="a pod ends when nothing may run",
        ),
        pytest.param(
            PodStatus(phase="Running", conditions=(READY, CONTAINERS)),
            PodStatus(phase="Failed", conditions=(READY, CONTAINERS)),
            False,
            PodStatus(
                phase="Failed",
                conditions=(condition("Ready", "False", **FAILED), condition("ContainersReady", "False", **FAILED)),
            ),
            id="a pod that has ended is not ready",
        ),
        pytest.param(
            PodStatus(phase="Running"),
            PodStatus(phase="Succeeded", conditions=(READY,)),
            False,
            PodStatus(
                phase="Succeeded",
                conditions=(
                    condition("Ready", "False", reason="PodCompleted", since=NOW),
                    condition("ContainersReady", "False", reason="PodCompleted", since=NOW),
                ),
            ),
            id="a missing ContainersReady is added",
        ),
        pytest.param(
            PodStatus(phase="Running"),
            PodStatus(phase="Failed", conditions=(TARGET,)),
            False,
            PodStatus(phase="Failed", conditions=(replace(TARGET, last_transition_time=NOW),)),
            id="a disruption is reported when the pod ends",
        ),
        pytest.param(
            PodStatus(phase="Running"),
            PodStatus(phase="Failed", conditions=(TARGET,)),
            True,
            PodStatus(phase="Running"),
            id="a disruption is not reported while containers may run",
        ),
        pytest.param(
            PodStatus(phase="Running", conditions=(condition("DisruptionTarget", reason="Eviction"), GATE)),
            PodStatus(phase="Failed", conditions=(TARGET,)),
            False,
            PodStatus(phase="Failed", conditions=(TARGET, GATE)),
            id="a disruption replaces an older one in its place and keeps its date",
        ),
        pytest.param(
            PodStatus(phase="Failed", conditions=(condition("DisruptionTarget", reason="Eviction"),)),
            PodStatus(phase="Failed", conditions=(TARGET,)),
            False,
            PodStatus(phase="Failed", conditions=(condition("DisruptionTarget", reason="Eviction"),)),
            id="a disruption of a pod that had ended stays",
        ),
    ],
)
def test_merge_status(old, new, may_run, merged):
    assert merge_status(old, new, may_run=may_run, now=NOW) == merged


@pytest.mark.parametrize(
    ("there", "annotations", "reported", "written"),
    [
        pytest.param("Succeeded", {}, "Failed", "Succeeded", id="an end is final, also for a node that forgot it"),
        pytest.param("Failed", {}, "Running", "Failed", id="what has ended does not run"),
        pytest.param("Failed", {MIRROR_ANNOTATION: "1"}, "Running", "Running", id="a static pod may run again"),
        pytest.param("Running", {}, "Failed", "Failed", id="what ends is reported"),
    ],
)
def test_status_to_write(there, annotations, reported, written):
    pod = make_pod(name="p")
    pod = replace(
        pod, metadata=replace(pod.metadata, annotations=annotations), status=PodStatus(phase=there, message="as it was")
    )
    found = status_to_write(pod, PodStatus(phase=reported), may_run=False, now=NOW)
    assert found.phase == written
    assert (found.message == "as it was") == (written == there)


def leaving(phase="Failed", *, deleted=True, mirror=False):
    pod = make_pod(deleted=deleted)
    if mirror:
        pod = replace(pod, metadata=replace(pod.metadata, annotations={MIRROR_ANNOTATION: "x"}))
    return replace(pod, status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("pod", "is_finished", "expected"),
    [
        pytest.param(leaving(), True, True, id="ended and released"),
        pytest.param(leaving("Succeeded"), True, True, id="succeeded and released"),
        pytest.param(leaving(), False, False, id="something is still held"),
        pytest.param(leaving("Running"), True, False, id="the API server does not know of its end"),
        pytest.param(leaving(deleted=False), True, False, id="nobody deletes it"),
        pytest.param(leaving(mirror=True), True, False, id="a mirror is not let go of here"),
    ],
)
def test_may_be_deleted(pod, is_finished, expected):
    assert may_be_deleted(pod, is_finished=is_finished) is expected
