"""The boards of volumes, and the back-off of operations."""

from datetime import timedelta

from klet.model.allocation import PodAllocation
from klet.model.causes import FindingSubject
from klet.model.objects import ObjectKind, ObjectRef
from klet.volumes.names import MountKey
from klet.volumes.operations import Operation, OperationBackoff
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import (
    ActualMount,
    ActualState,
    DesiredMount,
    DesiredState,
    MountState,
)

KEY = MountKey("kubernetes.io/configmap/u-v", "u")
CFG = ObjectRef(ObjectKind.CONFIG_MAP, "ns", "cfg")
NOW = 1000.1


def desired(revision=0, pod=None):
    spec = pod and VolumeSpec(pod.spec.volumes[0])
    return DesiredMount(
        key=KEY,
        pod=pod,
        allocation=PodAllocation(),
        spec=spec,
        plugin=None,
        names=frozenset({"v"}),
        revision=revision,
    )


def actual(state=MountState.MOUNTED, revision=0):
    return ActualMount(
        key=KEY,
        plugin=None,
        name="v",
        state=state,
        subject=FindingSubject(),
        revision=revision,
    )


def test_objects_lead_to_the_volumes_that_show_them(pod_with):
    state = DesiredState()
    state.put(desired(pod=pod_with({"configMap": {"name": "cfg"}})))
    assert state.users_of(CFG) == {KEY}
    state.touch(KEY)
    assert state.get(KEY).revision == 1
    state.remove_pod("u")
    assert state.users_of(CFG) == set()
    assert state.of_pod("u") == ()


def test_errors_are_kept_until_somebody_asks():
    state = DesiredState()
    for number in range(20):
        state.add_error("u", f"{number:02}")
    state.add_error("u", "00")
    assert state.pop_errors("u") == tuple(f"{number:02}" for number in range(11))
    assert state.pop_errors("u") == ()


def test_an_uncertain_volume_is_not_mounted():
    state = ActualState()
    state.put(actual(MountState.UNCERTAIN))
    assert not state.is_mounted(KEY)
    state.put(actual())
    assert state.is_mounted(KEY)
    state.remove(KEY)
    state.remove(KEY)
    assert state.of_pod("u") == ()


def test_delays_double_up_to_two_minutes():
    backoff, now, delays = OperationBackoff(), NOW, []
    for _ in range(10):
        delay = backoff.failed(KEY, Operation.MOUNT, now=now)
        assert backoff.remaining(KEY, Operation.MOUNT, now=now) == delay
        delays.append(delay.total_seconds())
        now += delay.total_seconds()
        assert backoff.remaining(KEY, Operation.MOUNT, now=now) is None
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]


def test_an_unmount_does_not_wait_for_a_mount():
    backoff = OperationBackoff()
    backoff.failed(KEY, Operation.MOUNT, now=NOW)
    assert backoff.remaining(KEY, Operation.UNMOUNT, now=NOW) is None
    assert backoff.failed(KEY, Operation.UNMOUNT, now=NOW) == timedelta(milliseconds=500)


def test_success_resets_the_delay():
    backoff = OperationBackoff()
    backoff.failed(KEY, Operation.MOUNT, now=NOW)
    backoff.forget(KEY)
    assert backoff.failed(KEY, Operation.MOUNT, now=NOW) == timedelta(milliseconds=500)
