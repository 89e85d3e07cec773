"""Volumes that have grown: what is done, and what their claims say then. Rows are those of upstream's tests."""

from datetime import UTC, datetime

import pytest

from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.quantity import Quantity
from klet.volumes.expansion_plan import decide_end, patch_begun, plan_expansion
from klet.volumes.plugins.base import Expansion, ExpansionOutcome

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TWO = Quantity.parse("2Gi")
OK = Expansion(ExpansionOutcome.FINISHED)
INFEASIBLE = Expansion(ExpansionOutcome.INFEASIBLE, "too large")
FAILED = Expansion(ExpansionOutcome.FAILED, "no")
IN_USE = Expansion(ExpansionOutcome.IN_USE, "in use")
UNSUPPORTED = Expansion(ExpansionOutcome.NOT_SUPPORTED, "not supported")
TRANSIENT = Expansion(ExpansionOutcome.TRANSIENT, "no driver")
NOT_REQUIRED = {"volume.kubernetes.io/node-expansion-not-required": "true"}


def claim(
    status="",
    *,
    capacity="1Gi",
    allocated="2Gi",
    access="ReadWriteOnce",
    annotations=(),
    requested="2Gi",
    conditions=(),
):
    body = {"capacity": {"storage": capacity}, "conditions": [{"type": each, "status": "True"} for each in conditions]}
    if status:
        body["allocatedResourceStatuses"] = {"storage": status}
    if allocated:
        body["allocatedResources"] = {"storage": allocated}
    spec = {"accessModes": [access], "resources": {"requests": {"storage": requested}}}
    meta = {"name": "c", "namespace": "ns", "resourceVersion": "7", "annotations": dict(annotations)}
    return convert(PersistentVolumeClaim, {"metadata": meta, "spec": spec, "status": body})


@pytest.mark.parametrize(
    ("given", "is_allowed", "is_updated"),
    [
        pytest.param(claim("NodeResizeInfeasible"), False, False, id="the controller has to recover first"),
        pytest.param(claim("ControllerResizeInProgress"), False, False, id="the controller is at it"),
        pytest.param(claim("NodeResizePending"), True, False, id="it is the node's turn"),
        pytest.param(claim("NodeResizeInProgress"), True, False, id="the node has begun"),
        pytest.param(claim(""), False, False, id="no status, and not done"),
        pytest.param(claim("", capacity="2Gi"), False, True, id="done, by another node: one writer at a time"),
        pytest.param(claim("", capacity="2Gi", access="ReadWriteMany"), True, True, id="done, but each node has to"),
        pytest.param(
            claim("", capacity="2Gi", access="ReadWriteMany", annotations=NOT_REQUIRED.items()),
            False,
            True,
            id="done, and no other node has to",
        ),
        pytest.param(claim("", allocated=""), True, False, id="a claim that does not say where it stands"),
    ],
)
def test_what_is_allowed(given, is_allowed, is_updated):
    plan = plan_expansion(given, size=TWO, has_failed=False)
    assert (plan.is_allowed, plan.is_claim_updated, plan.new_size) == (is_allowed, is_updated, TWO)


@pytest.mark.parametrize(
    ("requested", "has_failed", "marks"),
    [
        pytest.param("1Gi", True, True, id="the user wants less, after it has failed for good"),
        pytest.param("2Gi", True, False, id="the user wants it still"),
        pytest.param("1Gi", False, False, id="it has not failed"),
    ],
)
def test_a_volume_that_nobody_wants_so_large_any_more_is_infeasible(requested, has_failed, marks):
    plan = plan_expansion(claim("NodeResizePending", requested=requested), size=TWO, has_failed=has_failed)
    assert plan.marks_infeasible == marks


def test_the_begin_is_noted_with_the_version_of_the_claim():
    assert patch_begun(claim("NodeResizePending")) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}},
    }


def end(given, expansion, *, has_failed=False):
    return decide_end(plan_expansion(given, size=TWO, has_failed=has_failed), expansion, given, now=NOW)


def test_a_volume_that_has_grown_is_noted_and_the_conditions_go():
    done = end(claim("NodeResizeInProgress", conditions=("FileSystemResizePending", "Other", "NodeResizeError")), OK)
    assert (done.is_finished, done.is_reported, done.error, done.must_be_patched) == (True, True, "", True)
    assert done.patch == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": None},
            "conditions": [
                {"$patch": "delete", "type": "FileSystemResizePending"},
                {"$patch": "delete", "type": "NodeResizeError"},
            ],
        },
    }


@pytest.mark.parametrize(
    ("given", "expansion", "is_finished", "error", "is_final"),
    [
        pytest.param(claim("NodeResizePending"), OK, True, "", False, id="done"),
        pytest.param(claim("NodeResizePending"), INFEASIBLE, False, "too large", True, id="never so large"),
        pytest.param(claim("NodeResizePending"), FAILED, False, "no", True, id="an error"),
        pytest.param(claim("NodeResizePending"), UNSUPPORTED, False, "not supported", True, id="not by this driver"),
        pytest.param(claim("NodeResizePending"), IN_USE, False, "", True, id="in use: the mount goes on"),
        pytest.param(claim("NodeResizePending"), TRANSIENT, False, "no driver", False, id="the driver is not there"),
        pytest.param(
            claim("", capacity="2Gi", access="ReadWriteMany"),
            UNSUPPORTED,
            True,
            "",
            False,
            id="another node has done it",
        ),
        pytest.param(claim(allocated=""), OK, True, "", False, id="old way: done"),
        pytest.param(claim(allocated=""), UNSUPPORTED, True, "", False, id="old way: nothing to be done"),
        pytest.param(claim(allocated=""), IN_USE, True, "", False, id="old way: in use"),
        pytest.param(claim(allocated=""), FAILED, False, "no", False, id="old way: an error"),
    ],
)
def test_the_end(given, expansion, is_finished, error, is_final):
    done = end(given, expansion)
    assert (done.is_finished, done.error, done.is_final_error) == (is_finished, error, is_final)
    assert done.grows_unused_only == (expansion is IN_USE)
    assert done.is_reported == (expansion is OK)


@pytest.mark.parametrize(
    ("given", "expansion", "has_failed", "status"),
    [
        pytest.param(claim("NodeResizePending"), FAILED, False, {"conditions"}, id="an error is a condition"),
        pytest.param(
            claim("NodeResizePending"),
            INFEASIBLE,
            False,
            {"conditions", "allocatedResourceStatuses"},
            id="never so large: the status says so, too",
        ),
        pytest.param(
            claim("NodeResizePending", requested="1Gi"),
            FAILED,
            True,
            {"conditions", "allocatedResourceStatuses"},
            id="nobody wants it so large any more",
        ),
        pytest.param(
            claim("NodeResizePending", conditions=("NodeResizeError",)), FAILED, False, set(), id="it is known already"
        ),
    ],
)
def test_what_the_claim_says_of_a_failure(given, expansion, has_failed, status):
    patch = end(given, expansion, has_failed=has_failed).patch
    assert set(patch.get("status", ())) == status
    assert "metadata" not in patch
    if "allocatedResourceStatuses" in status:
        assert patch["status"]["allocatedResourceStatuses"] == {"storage": "NodeResizeInfeasible"}
    if status:
        [condition] = patch["status"]["conditions"]
        assert condition == {
            "type": "NodeResizeError",
            "status": "True",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
            "message": f"failed to expand pvc with {expansion.error}",
        }


def test_the_old_way_patches_a_claim_that_has_less_only():
    assert end(claim(allocated=""), OK).patch["status"] == {"capacity": {"storage": "2Gi"}}
    assert end(claim(allocated="", capacity="2Gi"), OK).patch is None
