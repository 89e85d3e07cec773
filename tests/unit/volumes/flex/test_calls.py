"""What flexVolume drivers are given, and what they answer."""

import pytest
from msgspec import json

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.volumes.errors import VolumeSetupError
from klet.volumes.flex.calls import (
    FlexCallFailed,
    FlexCapabilities,
    FlexNotSupported,
    encode_options,
    pod_options,
    read_answer,
    secret_name,
    secret_options,
)
from klet.volumes.spec import VolumeSpec


def inline(**fields):
    return VolumeSpec(convert(Volume, {"name": "v", "flexVolume": {"driver": "vendor/disk", **fields}}))


def claimed(*, read_only=False, **fields):
    source = {"driver": "vendor/disk", **fields}
    volume = convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": {"flexVolume": source}})
    return VolumeSpec(Volume(name="v"), volume, read_only=read_only)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            inline(),
            {"kubernetes.io/fsType": "", "kubernetes.io/pvOrVolumeName": "v", "kubernetes.io/readwrite": "rw"},
            id="inline",
        ),
        pytest.param(
            claimed(read_only=True, fsType="xfs", options={"size": "1"}),
            {
                "kubernetes.io/fsType": "xfs",
                "kubernetes.io/pvOrVolumeName": "pv",
                "kubernetes.io/readwrite": "ro",
                "size": "1",
            },
            id="a persistent volume that is claimed for reading",
        ),
        pytest.param(
            inline(options={"kubernetes.io/fsType": "mine"}, readOnly=True),
            {"kubernetes.io/fsType": "mine", "kubernetes.io/pvOrVolumeName": "v", "kubernetes.io/readwrite": "ro"},
            id="what the volume names comes last",
        ),
    ],
)
def test_options(spec, expected):
    encoded = encode_options(spec)
    assert json.decode(encoded) == expected
    assert list(json.decode(encoded)) == sorted(expected)


def test_options_of_a_pod_and_of_a_secret():
    pod = convert(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"serviceAccountName": "sa", "containers": []},
        },
    )
    assert pod_options(pod, fs_group=7) == {
        "kubernetes.io/pod.name": "p",
        "kubernetes.io/pod.namespace": "ns",
        "kubernetes.io/pod.uid": "u",
        "kubernetes.io/serviceAccount.name": "sa",
        "kubernetes.io/mounterArgs.FsGroup": "7",
    }
    assert "kubernetes.io/mounterArgs.FsGroup" not in pod_options(pod, fs_group=None)
    assert secret_options({"key": b"\xffvalue"}) == {"kubernetes.io/secret/key": "/3ZhbHVl"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (inline(), None),
        (inline(secretRef={"name": "s"}), ("ns", "s")),
        (inline(secretRef={"name": ""}), None),
        (claimed(secretRef={"name": "s", "namespace": "other"}), ("other", "s")),
        (claimed(secretRef={"name": "s"}), ("ns", "s")),
        (claimed(), None),
    ],
)
def test_secret(spec, expected):
    assert secret_name(spec, namespace="ns") == expected


def test_an_answer_without_capabilities_and_one_with_some():
    assert read_answer("init", b'{"status":"Success"}').capabilities is None
    found = read_answer("init", b'{"status":"Success","capabilities":{"attach":false,"new":1},"more":[]}').capabilities
    assert found == FlexCapabilities(attach=False)
    assert (found.relabels, found.fs_group, found.requires_fs_resize, found.has_metrics) == (True, True, True, False)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        pytest.param(
            b'{"status":"Failure","message":"no disk"}',
            "mount command failed, status: Failure, reason: no disk",
            id="a failure",
        ),
        pytest.param(b"{}", "mount command failed, status: , reason: ", id="no status"),
        pytest.param(b'{"status":"success"}', "status: success", id="another spelling is no success"),
        pytest.param(b"oops", "Failed to unmarshal output for command: mount", id="no JSON"),
        pytest.param(b"", "Failed to unmarshal output for command: mount", id="nothing"),
        pytest.param(b'{"status":1}', "Failed to unmarshal output for command: mount", id="a number"),
        pytest.param(b"[" * 100_000, "Failed to unmarshal output for command: mount", id="a deep list"),
    ],
)
def test_answers_that_are_no_success(output, message):
    with pytest.raises(FlexCallFailed) as caught:
        read_answer("mount", output)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 5000


def test_a_command_that_a_driver_does_not_have():
    with pytest.raises(FlexNotSupported, match=r"^Not supported$"):
        read_answer("attach", b'{"status":"Not supported"}')


def test_a_volume_of_another_kind_has_no_options():
    with pytest.raises(VolumeSetupError):
        encode_options(VolumeSpec(Volume(name="v")))
