"""Which operations run side by side. The delays are tested with the boards."""

import pytest

from klet.volumes.names import MountKey
from klet.volumes.operations import RunningOperations, whole

V, A, B, OTHER = whole("v"), MountKey("v", "a"), MountKey("v", "b"), MountKey("w", "a")


@pytest.mark.parametrize(
    ("first", "second", "is_allowed"),
    [
        pytest.param(V, V, False, id="the device twice"),
        pytest.param(V, A, False, id="a pod while the device is handled"),
        pytest.param(A, V, False, id="the device while a pod is handled"),
        pytest.param(A, A, False, id="a pod twice"),
        pytest.param(A, B, True, id="two pods"),
        pytest.param(V, OTHER, True, id="two volumes"),
        pytest.param(A, OTHER, True, id="two volumes of a pod"),
    ],
)
def test_operations_that_exclude_one_another(first, second, is_allowed):
    running = RunningOperations()
    assert running.begin(first, waiter=first)
    assert running.begin(second, waiter=second) == is_allowed


def test_what_waits_comes_again_once_when_an_operation_ends():
    running = RunningOperations()
    assert running.begin(A, waiter=A)
    assert running.begin(B, waiter=B)
    assert not running.begin(V, waiter=MountKey("v", "c"))
    assert not running.begin(V, waiter=MountKey("v", "c"))
    assert running.end(A) == [MountKey("v", "c")]
    assert not running.begin(V, waiter=MountKey("v", "c"))
    assert running.end(B) == [MountKey("v", "c")]
    assert running.begin(V, waiter=MountKey("v", "c"))
    assert running.end(V) == []
