"""The boards of volumes, and the back-off of operations."""

from datetime import timedelta

from msgspec.structs import replace

from klet.model.allocation import PodAllocation
from klet.model.causes import FindingSubject
from klet.model.objects import ObjectKind, ObjectRef
from klet.volumes.names import MountKey, VolumeName
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


DISK = VolumeName("kubernetes.io/csi/driver^disk")


def test_what_pods_should_share_is_found_until_the_last_of_them_goes(pod_with):
    state = DesiredState()
    shares = [
        replace(desired(pod=pod_with({"configMap": {"name": "cfg"}})), key=MountKey(DISK, uid)) for uid in ("a", "b")
    ]
    for mount in (*shares, desired(pod=pod_with({"configMap": {"name": "cfg"}}))):
        state.put(mount)
    state.put(again := replace(shares[0], revision=1))
    assert state.of_volume(DISK) == [again, shares[1]]
    state.remove_pod("a")
    assert state.of_volume(DISK) == [shares[1]]
    state.remove_pod("b")
    assert state.of_volume(DISK) == []


def test_what_is_reported_in_use_is_forgotten_with_the_last_pod(pod_with):
    state = DesiredState()
    for uid in ("a", "b"):
        state.put(
            replace(desired(pod=pod_with({"configMap": {"name": "cfg"}})), key=MountKey(DISK, uid), is_attachable=True)
        )
    state.report([DISK])
    state.remove_pod("a")
    assert state.is_reported(DISK)
    state.remove_pod("b")
    assert not state.is_reported(DISK)


def test_who_else_has_a_volume():
    state = ActualState()
    here, there = MountKey(DISK, "a"), MountKey(DISK, "b")
    assert not state.has(DISK)
    state.put(replace(actual(), key=here))
    state.put(replace(actual(MountState.UNCERTAIN), key=here))
    assert (state.has(DISK), state.is_elsewhere(here), state.is_elsewhere(there)) == (True, False, True)
    state.put(replace(actual(), key=there))
    assert state.is_elsewhere(here)
    state.remove(here)
    state.remove(here)
    assert (state.has(DISK), state.is_elsewhere(here), state.is_elsewhere(there)) == (True, True, False)
    state.remove(there)
    assert not state.has(DISK)


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
