"""Graceful deletion of pods, case by case."""

from datetime import UTC, datetime, timedelta

import pytest

from klet.api.times import Time
from klet.embedded.deletion import AlreadyDeleting, Mark, Remove, decide_deletion, decide_pod_deletion, marked

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def pod(*, node="n", phase="Running", grace=30, deleting=None, passed=0, finalizers=()):
    metadata = {"name": "p", "generation": 1}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    if deleting is not None:
        start = NOW - timedelta(seconds=passed)
        metadata["deletionTimestamp"] = Time.of(start + timedelta(seconds=max(deleting, 0))).wire()
        metadata["deletionGracePeriodSeconds"] = deleting
    spec = {"terminationGracePeriodSeconds": grace}
    if node:
        spec["nodeName"] = node
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def in_seconds(seconds):
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("stored", "requested", "verdict"),
    [
        pytest.param(pod(), 30, Mark(in_seconds(30), 30), id="a running pod gets its grace"),
        pytest.param(pod(grace=7), None, Mark(in_seconds(7), 7), id="the pod's own grace without a wish"),
        pytest.param(pod(node=""), 30, Remove(), id="nobody runs a pod without a node"),
        pytest.param(pod(phase="Failed"), 30, Remove(), id="a failed pod has nothing to stop"),
        pytest.param(pod(phase="Succeeded"), 30, Remove(), id="a pod that has succeeded has nothing to stop"),
        pytest.param(pod(grace=-1), None, Mark(in_seconds(1), 1), id="a negative grace is one second"),
        pytest.param(pod(), 0, Remove(), id="no grace wanted"),
        pytest.param(pod(finalizers=("a/b",)), 0, Mark(NOW, 0), id="a finalizer holds it"),
        pytest.param(pod(deleting=30), 30, AlreadyDeleting(), id="as long as before changes nothing"),
        pytest.param(pod(deleting=30), 60, AlreadyDeleting(), id="longer than before changes nothing"),
        pytest.param(pod(deleting=30), None, AlreadyDeleting(), id="a second delete without a wish changes nothing"),
        pytest.param(
            pod(deleting=30), 5, Mark(in_seconds(5), 5), id="shorter than before counts from the first delete"
        ),
        pytest.param(pod(deleting=30, passed=20), 5, Mark(NOW, 1), id="a shorter time that is over leaves one second"),
        pytest.param(pod(deleting=-1), 1, AlreadyDeleting(), id="a stored negative grace is one second"),
        pytest.param(pod(deleting=-1), 0, Remove(), id="no grace ends a stored negative one"),
        pytest.param(pod(deleting=30), 0, Remove(), id="the last status of the kubelet"),
        pytest.param(pod(deleting=0), 30, Remove(), id="nothing is left of the grace"),
        pytest.param(pod(deleting=0, finalizers=("a/b",)), 0, AlreadyDeleting(), id="only the finalizer is missing"),
    ],
)
def test_decide_pod_deletion(stored, requested, verdict):
    assert decide_pod_deletion(stored, requested, now=NOW) == verdict


@pytest.mark.parametrize(
    ("metadata", "verdict"),
    [
        pytest.param({}, Remove(), id="gone at once"),
        pytest.param({"finalizers": ["a/b"]}, Mark(NOW, 0), id="a finalizer holds it"),
        pytest.param({"finalizers": ["a/b"], "deletionTimestamp": "x"}, AlreadyDeleting(), id="being deleted already"),
    ],
)
def test_decide_deletion(metadata, verdict):
    assert decide_deletion({"metadata": metadata}, now=NOW) == verdict


def test_the_first_mark_is_a_new_generation_and_the_second_is_not():
    first = marked(pod(), Mark(in_seconds(30), 30))
    assert first["metadata"]["generation"] == 2
    assert first["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:35Z"
    assert marked(first, Mark(in_seconds(5), 5))["metadata"]["generation"] == 2
