"""SELinux labels that volumes are mounted with."""

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.host.mountinfo import parse_mountinfo
from klet.volumes.errors import VolumeSetupError
from klet.volumes.label_metrics import access_mode, plugin_label
from klet.volumes.labels import LabelRules, choose_label, is_labelled, mounted_label
from klet.volumes.spec import VolumeSpec

ON = LabelRules(is_on=True)
ALL = LabelRules(is_on=True, has_all_modes=True)
ONE = {"level": "s0:c1,c2"}


def spec(*modes, volume_mode="Filesystem"):
    body = {"metadata": {"name": "pv"}, "spec": {"accessModes": modes, "volumeMode": volume_mode}}
    return VolumeSpec(Volume(name="v"), convert(PersistentVolume, body))


@pytest.mark.parametrize(
    ("given", "rules", "supports", "expected"),
    [
        pytest.param(spec("ReadWriteOncePod"), ON, True, True, id="for one pod"),
        pytest.param(spec("ReadWriteOncePod"), ON, False, False, id="the plugin cannot"),
        pytest.param(spec("ReadWriteOncePod"), LabelRules(), True, False, id="a machine without SELinux"),
        pytest.param(spec("ReadWriteOnce"), ON, True, False, id="for one node"),
        pytest.param(spec("ReadWriteMany"), ON, True, False, id="for many"),
        pytest.param(spec("ReadWriteOncePod", "ReadWriteOnce"), ON, True, False, id="not for one pod only"),
        pytest.param(spec("ReadWriteMany"), ALL, True, True, id="for many, with the gate"),
        pytest.param(VolumeSpec(Volume(name="v")), ALL, True, False, id="a volume of the pod itself"),
        pytest.param(spec("ReadWriteOncePod", volume_mode="Block"), ON, True, False, id="a device"),
    ],
)
def test_which_volumes_are_mounted_with_a_label(given, rules, supports, expected):
    assert is_labelled(given, rules, supports=supports) == expected


def pod(*containers, **context):
    made = [
        {
            "name": f"c{index}",
            "image": "i",
            "volumeMounts": [{"name": name, "mountPath": "/v"}],
            **({} if options is None else {"securityContext": {"seLinuxOptions": options}}),
        }
        for index, (name, options) in enumerate(containers)
    ]
    return convert(
        Pod, {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": made, "securityContext": context}}
    )


@pytest.mark.parametrize(
    ("given", "rules", "label"),
    [
        pytest.param(pod(("v", None)), ON, "", id="no options"),
        pytest.param(pod(("v", {})), ON, "", id="empty options"),
        pytest.param(
            pod(("v", ONE)), ON, "system_u:object_r:container_file_t:s0:c1,c2", id="the container has a level"
        ),
        pytest.param(
            pod(("v", None), seLinuxOptions=ONE),
            ON,
            "system_u:object_r:container_file_t:s0:c1,c2",
            id="the pod has a level",
        ),
        pytest.param(
            pod(("v", {"user": "me", "role": "r", "type": "process_t", "level": "s1"})),
            ON,
            "me:object_r:container_file_t:s1",
            id="role and type are those of processes",
        ),
        pytest.param(pod(("v", {"type": "t"})), ON, "system_u:object_r:container_file_t:s0", id="no level"),
        pytest.param(
            pod(("v", ONE), ("v", None)),
            ON,
            "system_u:object_r:container_file_t:s0:c1,c2",
            id="a container without options does not count",
        ),
        pytest.param(
            pod(("v", ONE), ("other", {"level": "s9"})),
            ON,
            "system_u:object_r:container_file_t:s0:c1,c2",
            id="a container without the volume does not count",
        ),
        pytest.param(pod(("v", ONE), seLinuxChangePolicy="Recursive"), ON, "", id="the pod wants relabelling"),
        pytest.param(
            pod(("v", ONE), seLinuxChangePolicy="Recursive"),
            LabelRules(is_on=True, has_policy=False),
            "system_u:object_r:container_file_t:s0:c1,c2",
            id="the pod wants relabelling, without the gate",
        ),
    ],
)
def test_the_label(given, rules, label):
    assert choose_label(given, ["v"], rules) == label


def test_containers_have_to_agree():
    with pytest.raises(VolumeSetupError) as raised:
        choose_label(pod(("v", {"level": "s0:c2"}), ("v", ONE)), ["v"], ON)
    assert str(raised.value) == (
        "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2,"
        "system_u:object_r:container_file_t:s0:c2"
    )


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        pytest.param(spec("ReadWriteOncePod"), "RWOP", id="for one pod"),
        pytest.param(spec("ReadWriteOncePod", "ReadWriteOnce"), "RWO", id="for one node, too"),
        pytest.param(spec("ReadWriteOnce", "ReadOnlyMany"), "ROX", id="for many readers, too"),
        pytest.param(spec("ReadOnlyMany", "ReadWriteMany"), "RWX", id="for many, too"),
        pytest.param(VolumeSpec(Volume(name="v")), "inline", id="a volume of the pod itself"),
    ],
)
def test_the_access_mode_that_metrics_name(given, mode):
    assert access_mode(given) == mode


@pytest.mark.parametrize(
    ("csi", "expected"),
    [
        pytest.param({"driver": "d.example", "volumeHandle": "h"}, "kubernetes.io/csi/d.example", id="a driver"),
        pytest.param(None, "kubernetes.io/csi", id="no driver"),
    ],
)
def test_the_plugin_that_metrics_name(csi, expected):
    persistent = convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": {"csi": csi} if csi else {}})
    assert plugin_label(VolumeSpec(Volume(name="v"), persistent), "kubernetes.io/csi") == expected


@pytest.mark.parametrize(
    ("options", "label"),
    [
        pytest.param('rw,context="u:object_r:t:s0:c1,c2",nodev', "u:object_r:t:s0:c1,c2", id="with a comma"),
        pytest.param("rw,context=u:object_r:t:s0", "u:object_r:t:s0", id="without quotes"),
        pytest.param('context="u:r:t:s0",rw', "u:r:t:s0", id="first"),
        pytest.param('rw,fscontext="u:r:t:s0",rootcontext=u:r:t:s1', "", id="other kinds of labels"),
        pytest.param("rw,seclabel", "", id="labels of files"),
    ],
)
def test_the_label_of_a_mount(options, label):
    [mount] = parse_mountinfo(f"40 30 8:0 / /m rw shared:1 - ext4 /dev/sda {options}")
    assert mounted_label(mount) == label
