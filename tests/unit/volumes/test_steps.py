"""What the reconciler does next: with a volume of a pod, with its device, and after a failure."""

import pytest

from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.causes import FindingSubject
from klet.volumes.devices import DeviceState, NodeDevice
from klet.volumes.errors import StepFailed, TransientFailure, UncertainProgress
from klet.volumes.names import MountKey
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import ActualMount, DesiredMount, MountState
from klet.volumes.steps import (
    Attach,
    AttachWay,
    DetachDevice,
    Expand,
    ForgetDevice,
    Leave,
    Mount,
    Unmount,
    UnmountDevice,
    decide_attach,
    decide_device_state,
    decide_device_step,
    decide_mount_state,
    decide_step,
)

NAME = "kubernetes.io/gce-pd/a"
KEY = MountKey(NAME, "u")
NOW = 1000.1
SOON = NOW + 60.0


def spec(*, size="1Gi", read_only=False):
    body = {"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": size}}}
    return VolumeSpec(Volume(name="v"), convert(PersistentVolume, body), read_only=read_only)


def desired(*, remounts=False, revision=0, of=None, **fields):
    return DesiredMount(
        key=KEY,
        pod=None,
        allocation=PodAllocation(),
        spec=of or spec(),
        plugin=None,
        names=frozenset({"v"}),
        remounts=remounts,
        revision=revision,
        **fields,
    )


def actual(state=MountState.MOUNTED, revision=0, refresh_at=SOON):
    return ActualMount(
        key=KEY,
        plugin=None,
        name="v",
        state=state,
        subject=FindingSubject(),
        revision=revision,
        refresh_at=refresh_at,
    )


def device(**fields):
    fields = {"is_attachable": True, "size": spec().persistent.spec.capacity["storage"], **fields}
    return NodeDevice(name=NAME, plugin=None, spec=spec(), **fields)


SHOWN = desired(remounts=True)


@pytest.mark.parametrize(
    ("want", "have", "is_leaving", "step"),
    [
        pytest.param(SHOWN, None, False, Mount(is_remount=False), id="not there yet"),
        pytest.param(SHOWN, actual(MountState.UNCERTAIN), False, Mount(is_remount=False), id="perhaps there"),
        pytest.param(SHOWN, actual(), False, Leave(until=SOON), id="there and new"),
        pytest.param(
            desired(remounts=True, revision=1), actual(), False, Mount(is_remount=True), id="there and out of date"
        ),
        pytest.param(SHOWN, actual(refresh_at=NOW), False, Mount(is_remount=True), id="due"),
        pytest.param(desired(revision=1), actual(), False, Leave(until=SOON), id="its content is the pod's"),
        pytest.param(None, actual(), False, Leave(), id="nobody wants it, but its pod may come: the agent restarted"),
        pytest.param(None, None, False, Leave(), id="nothing at all"),
        pytest.param(None, actual(), True, Unmount(), id="its pod is over"),
        pytest.param(None, actual(MountState.UNCERTAIN), True, Unmount(), id="perhaps there, its pod is over"),
        pytest.param(None, None, True, Leave(), id="gone with its pod"),
    ],
)
def test_the_next_step(want, have, is_leaving, step):
    assert decide_step(want, have, None, is_leaving=is_leaving, attach=AttachWay.NOT_NEEDED, now=NOW) == step


@pytest.mark.parametrize(
    ("have", "is_leaving", "attach", "step"),
    [
        pytest.param(None, False, AttachWay.WAIT, Leave(), id="it waits without a back-off"),
        pytest.param(None, False, AttachWay.VERIFY, Attach(AttachWay.VERIFY), id="it may be attached"),
        pytest.param(None, False, AttachWay.ADD, Attach(AttachWay.ADD), id="it needs no attaching"),
        pytest.param(None, False, AttachWay.ATTACH, Attach(AttachWay.ATTACH), id="the agent attaches it"),
        pytest.param(actual(refresh_at=NOW), False, AttachWay.WAIT, Mount(is_remount=True), id="there and due"),
        pytest.param(actual(), True, AttachWay.WAIT, Unmount(), id="its pod is over"),
    ],
)
def test_the_next_step_of_one_without_device(have, is_leaving, attach, step):
    assert decide_step(SHOWN, have, None, is_leaving=is_leaving, attach=attach, now=NOW) == step


GROWS = {"is_staged": True, "is_expandable": True}


@pytest.mark.parametrize(
    ("want", "on_node", "step"),
    [
        pytest.param(desired(of=spec(size="2Gi"), **GROWS), device(), Expand(), id="it has grown"),
        pytest.param(desired(of=spec(size="1Gi"), **GROWS), device(), Leave(until=SOON), id="it has not"),
        pytest.param(desired(of=spec(size="512Mi"), **GROWS), device(), Leave(until=SOON), id="it is smaller"),
        pytest.param(
            desired(of=spec(size="2Gi"), is_staged=True), device(), Leave(until=SOON), id="no kind that grows"
        ),
        pytest.param(
            desired(of=spec(size="2Gi", read_only=True), **GROWS), device(), Leave(until=SOON), id="for reading only"
        ),
        pytest.param(
            desired(of=spec(size="2Gi"), **GROWS), device(size=None), Leave(until=SOON), id="nobody knows its size"
        ),
        pytest.param(
            desired(of=spec(size="2Gi"), **GROWS),
            device(grows_unused_only=True),
            Leave(until=SOON),
            id="it grows only while nobody uses it",
        ),
    ],
)
def test_a_volume_that_has_grown_is_expanded(want, on_node, step):
    assert decide_step(want, actual(), on_node, is_leaving=False, attach=AttachWay.NOT_NEEDED, now=NOW) == step


STAGED = desired(is_staged=True, is_attachable=True)


@pytest.mark.parametrize(
    ("want", "on_node", "is_reported", "attached", "by_agent", "way"),
    [
        pytest.param(desired(), None, False, None, False, AttachWay.NOT_NEEDED, id="a kind without devices"),
        pytest.param(STAGED, device(), False, None, False, AttachWay.NOT_NEEDED, id="it is on the board"),
        pytest.param(
            desired(is_staged=True), None, False, None, False, AttachWay.ADD, id="a device that is never attached"
        ),
        pytest.param(
            desired(is_staged=True, is_attachable=None), None, True, {NAME}, True, AttachWay.WAIT, id="nobody knows yet"
        ),
        pytest.param(STAGED, None, False, {NAME}, False, AttachWay.WAIT, id="its use is not reported"),
        pytest.param(STAGED, None, True, set(), False, AttachWay.WAIT, id="the node's status does not list it"),
        pytest.param(STAGED, None, True, {NAME}, False, AttachWay.VERIFY, id="the node's status lists it"),
        pytest.param(STAGED, None, True, None, False, AttachWay.VERIFY, id="the node was not seen: it is asked for"),
        pytest.param(STAGED, None, False, set(), True, AttachWay.ATTACH, id="no controller attaches here"),
        pytest.param(None, None, False, None, False, AttachWay.NOT_NEEDED, id="nobody wants it"),
    ],
)
def test_the_way_of_a_device_onto_the_board(want, on_node, is_reported, attached, by_agent, way):
    assert decide_attach(want, on_node, is_reported=is_reported, attached=attached, by_agent=by_agent) == way


IDLE = {"is_used": False, "is_wanted": False, "may_release": True, "awaits_node": False, "by_agent": False}
LEFT = device(state=DeviceState.UNCERTAIN, is_attachable=None, is_reconstructed=True)


@pytest.mark.parametrize(
    ("on_node", "facts", "step"),
    [
        pytest.param(None, {}, Leave(), id="there is none"),
        pytest.param(device(state=DeviceState.MOUNTED), {"is_used": True}, Leave(), id="a pod has it"),
        pytest.param(device(state=DeviceState.MOUNTED), {"is_wanted": True}, Leave(), id="a pod will have it"),
        pytest.param(device(state=DeviceState.MOUNTED), {}, UnmountDevice(), id="mounted for nobody"),
        pytest.param(device(state=DeviceState.UNCERTAIN), {}, UnmountDevice(), id="perhaps mounted for nobody"),
        pytest.param(device(), {}, ForgetDevice(), id="attached for nobody, by a controller"),
        pytest.param(device(), {"by_agent": True}, DetachDevice(), id="attached for nobody, by the agent"),
        pytest.param(device(is_attachable=False), {"by_agent": True}, ForgetDevice(), id="never attached"),
        pytest.param(LEFT, {"may_release": False}, Leave(), id="left by a previous run; its pod may come"),
        pytest.param(LEFT, {"awaits_node": True}, Leave(), id="left by a previous run; the node was not seen yet"),
        pytest.param(LEFT, {}, UnmountDevice(), id="left by a previous run, and of no pod"),
        pytest.param(
            device(state=DeviceState.MOUNTED), {"may_release": False}, UnmountDevice(), id="this run mounted it"
        ),
    ],
)
def test_the_next_step_of_a_device(on_node, facts, step):
    assert decide_device_step(on_node, **{**IDLE, **facts}) == step


UNSURE, TRANSIENT, FINAL = UncertainProgress("timeout"), TransientFailure("no driver"), KletError("no")
STATES = [
    pytest.param(False, UNSURE, False, None, id="not there: it may be there after a timeout"),
    pytest.param(False, FINAL, False, False, id="not there: a final error leaves it so"),
    pytest.param(False, TRANSIENT, False, False, id="not there: nothing was tried"),
    pytest.param(None, FINAL, False, False, id="uncertain: a final error says that it is not there"),
    pytest.param(None, FINAL, True, None, id="uncertain since a previous run: it may be that run's"),
    pytest.param(None, UNSURE, False, None, id="uncertain: still so after a timeout"),
    pytest.param(None, TRANSIENT, False, None, id="uncertain: still so if nothing was tried"),
    pytest.param(True, FINAL, False, True, id="there: whatever comes of another call"),
    pytest.param(True, UNSURE, False, True, id="there: though another call timed out"),
    pytest.param(True, TRANSIENT, True, True, id="there: though nothing was tried again"),
    pytest.param(None, StepFailed("step", "timeout"), False, False, id="the outermost error counts"),
]


@pytest.mark.parametrize(("before", "error", "is_reconstructed", "after"), STATES)
def test_what_is_known_of_a_device_after_a_failure(before, error, is_reconstructed, after):
    states = {True: DeviceState.MOUNTED, None: DeviceState.UNCERTAIN, False: DeviceState.NOT_MOUNTED}
    assert decide_device_state(states[before], error, is_reconstructed=is_reconstructed) == states[after]


@pytest.mark.parametrize(("before", "error", "is_reconstructed", "after"), STATES)
def test_what_is_known_of_a_volume_of_a_pod_after_a_failure(before, error, is_reconstructed, after):
    states = {True: MountState.MOUNTED, None: MountState.UNCERTAIN, False: None}
    assert decide_mount_state(states[before], error, is_reconstructed=is_reconstructed) == states[after]
