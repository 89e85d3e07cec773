"""What forbids mounting a volume before its plugin is asked."""

import pytest

from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.volumes.errors import MountStep, StepFailed
from klet.volumes.mount_checks import check_mount
from klet.volumes.spec import MOUNT_OPTIONS, VolumeSpec

LOCAL, HOST_PATH = "kubernetes.io/local-volume", "kubernetes.io/host-path"
LABELS = {"zone": "a"}


def affine(*values, field=False):
    need = [{"key": "metadata.name" if field else "zone", "operator": "In", "values": list(values)}]
    term = {"matchFields" if field else "matchExpressions": need}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


@pytest.fixture
def check(machine, pod_with):
    def call(plugin, *, spec=None, annotations=None, labels=LABELS, is_elsewhere=False):
        entry = pod_with({"emptyDir": {}}).spec.volumes[0]
        meta = {"name": "pv", "annotations": annotations or {}}
        volume = None if spec is None else convert(PersistentVolume, {"metadata": meta, "spec": spec})
        check_mount(VolumeSpec(entry, volume), machine.plugins[plugin], labels=labels, is_elsewhere=is_elsewhere)

    return call


@pytest.mark.parametrize(
    ("plugin", "given"),
    [
        pytest.param(HOST_PATH, {"labels": None, "is_elsewhere": True}, id="a volume of the pod itself"),
        pytest.param(LOCAL, {"spec": {}, "labels": None}, id="no affinity, and labels that are not known"),
        pytest.param(LOCAL, {"spec": {"nodeAffinity": {}}, "labels": None}, id="an affinity that needs nothing"),
        pytest.param(LOCAL, {"spec": affine("b", "a")}, id="a node that it is for"),
        pytest.param(LOCAL, {"spec": {"mountOptions": ["noexec"]}}, id="options of a kind that has them"),
        pytest.param(HOST_PATH, {"spec": {}, "annotations": {MOUNT_OPTIONS: ""}}, id="empty options"),
        pytest.param(LOCAL, {"spec": {"accessModes": ["ReadWriteOncePod"]}}, id="for one pod, and no other has it"),
        pytest.param(
            LOCAL, {"spec": {"accessModes": ["ReadWriteMany"]}, "is_elsewhere": True}, id="for many pods, with others"
        ),
        pytest.param(
            LOCAL,
            {"spec": {"accessModes": ["ReadWriteMany", "ReadWriteOncePod"]}, "is_elsewhere": True},
            id="for one pod among other modes, with others",
        ),
    ],
)
def test_what_may_be_mounted(check, plugin, given):
    check(plugin, **given)


@pytest.mark.parametrize(
    ("plugin", "given", "step", "error"),
    [
        pytest.param(
            LOCAL,
            {"spec": affine("b")},
            MountStep.NODE_AFFINITY,
            "no matching NodeSelectorTerms",
            id="a volume of another node",
        ),
        pytest.param(
            LOCAL,
            {"spec": affine("a"), "labels": {}},
            MountStep.NODE_AFFINITY,
            "no matching NodeSelectorTerms",
            id="a node without labels",
        ),
        pytest.param(
            LOCAL,
            {"spec": affine("a"), "labels": None},
            MountStep.NODE_AFFINITY,
            "the labels of this node are not known yet",
            id="a node whose labels are not known",
        ),
        pytest.param(
            LOCAL,
            {"spec": affine("node", field=True)},
            MountStep.NODE_AFFINITY,
            "no matching NodeSelectorTerms",
            id="an affinity to a name",
        ),
        pytest.param(
            HOST_PATH,
            {"spec": {"mountOptions": ["noexec"]}},
            MountStep.MOUNT_OPTIONS,
            "mount options are not supported for this volume type",
            id="options of a kind that has none",
        ),
        pytest.param(
            HOST_PATH,
            {"spec": {}, "annotations": {MOUNT_OPTIONS: "noexec"}},
            MountStep.MOUNT_OPTIONS,
            "mount options are not supported for this volume type",
            id="options by annotation of a kind that has none",
        ),
        pytest.param(
            LOCAL,
            {"spec": {"accessModes": ["ReadWriteOncePod"]}, "is_elsewhere": True},
            MountStep.SET_UP,
            "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
            id="for one pod, and another has it",
        ),
    ],
)
def test_what_may_not_be_mounted(check, plugin, given, step, error):
    with pytest.raises(StepFailed) as caught:
        check(plugin, **given)
    assert (caught.value.step, str(caught.value)) == (step, error)
