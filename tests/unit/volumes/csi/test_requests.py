"""Requests to drivers."""

import json
from datetime import UTC, datetime

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.csi.client import NodeCapability
from klet.model.objects import IssuedToken
from klet.volumes.csi.requests import (
    Given,
    access_mode,
    encode_tokens,
    expand_request,
    pod_info,
    publish_request,
    stage_request,
)
from klet.volumes.csi.source import CsiSource
from klet.wire import csi_v1_pb2 as pb

MODES = pb.VolumeCapability.AccessMode
NONE = frozenset()
MULTI = frozenset({NodeCapability.SINGLE_NODE_MULTI_WRITER})
GROUPS = frozenset({NodeCapability.VOLUME_MOUNT_GROUP})
SOURCE = CsiSource(
    driver="ebs.csi.example.com",
    handle="vol-0a1b",
    name="pvc-7f3a",
    fs_type="ext4",
    attributes={"a": "pv", "csi.storage.k8s.io/pod.name": "forged"},
    access_modes=("ReadWriteOnce",),
    mount_options=("noatime",),
)
POD = convert(
    Pod,
    {"metadata": {"name": "web-0", "namespace": "default", "uid": "u"}, "spec": {"serviceAccountName": "default"}},
)


@pytest.mark.parametrize(
    ("mode", "plain", "multi"),
    [
        ("ReadWriteOnce", MODES.SINGLE_NODE_WRITER, MODES.SINGLE_NODE_MULTI_WRITER),
        ("ReadWriteOncePod", MODES.SINGLE_NODE_WRITER, MODES.SINGLE_NODE_SINGLE_WRITER),
        ("ReadOnlyMany", MODES.MULTI_NODE_READER_ONLY, MODES.MULTI_NODE_READER_ONLY),
        ("ReadWriteMany", MODES.MULTI_NODE_MULTI_WRITER, MODES.MULTI_NODE_MULTI_WRITER),
        ("Other", MODES.UNKNOWN, MODES.UNKNOWN),
    ],
)
def test_access_modes(mode, plain, multi):
    assert access_mode(mode, NONE) == plain
    assert access_mode(mode, MULTI) == multi


def test_the_first_access_mode_counts_and_the_default_is_one_node():
    many = CsiSource(driver="d", handle="h", name="n", access_modes=("ReadOnlyMany", "ReadWriteOnce"))
    assert many.access_mode == "ReadOnlyMany"
    assert CsiSource(driver="d", handle="h", name="n").access_mode == "ReadWriteOnce"


def test_a_publish_request_is_as_the_reference_has_it():
    given = Given(
        capabilities=NONE,
        publish_context={"devicePath": "/dev/xvdba"},
        volume_context=pod_info(POD, is_inline=False),
        fs_group=2000,
    )
    assert publish_request(SOURCE, given, target="/t", staging="/s") == pb.NodePublishVolumeRequest(
        volume_id="vol-0a1b",
        publish_context={"devicePath": "/dev/xvdba"},
        staging_target_path="/s",
        target_path="/t",
        volume_capability=pb.VolumeCapability(
            mount=pb.VolumeCapability.MountVolume(fs_type="ext4", mount_flags=["noatime"]),
            access_mode=MODES(mode=MODES.SINGLE_NODE_WRITER),
        ),
        volume_context={
            "a": "pv",
            "csi.storage.k8s.io/pod.name": "web-0",
            "csi.storage.k8s.io/pod.namespace": "default",
            "csi.storage.k8s.io/pod.uid": "u",
            "csi.storage.k8s.io/serviceAccount.name": "default",
            "csi.storage.k8s.io/ephemeral": "false",
        },
    )


@pytest.mark.parametrize(
    ("capabilities", "group", "expected"),
    [
        pytest.param(GROUPS, 2000, "2000", id="the driver does it"),
        pytest.param(GROUPS, None, "", id="there is no group"),
        pytest.param(NONE, 2000, "", id="the driver does not"),
        pytest.param(GROUPS, 0, "0", id="group 0 is a group"),
    ],
)
def test_a_driver_is_given_the_group_if_it_changes_the_owner_itself(capabilities, group, expected):
    request = stage_request(SOURCE, Given(capabilities=capabilities, fs_group=group), staging="/s")
    assert request.volume_capability.mount.volume_mount_group == expected


def test_a_label_is_a_mount_option_in_quotes():
    given = Given(capabilities=NONE, label="system_u:object_r:container_file_t:s0:c1,c2")
    flags = stage_request(SOURCE, given, staging="/s").volume_capability.mount.mount_flags
    assert list(flags) == ["noatime", 'context="system_u:object_r:container_file_t:s0:c1,c2"']


def test_a_block_volume_has_no_mount_flags_type_and_group():
    given = Given(capabilities=GROUPS, fs_group=2000, label="x")
    capability = publish_request(SOURCE, given, target="/t", staging="/s", is_block=True).volume_capability
    assert capability == pb.VolumeCapability(
        block=pb.VolumeCapability.BlockVolume(), access_mode=MODES(mode=MODES.SINGLE_NODE_WRITER)
    )


def test_an_expansion_asks_for_at_least_the_new_size():
    request = expand_request(
        SOURCE, Given(capabilities=NONE, secrets={"k": "v"}), path="/p", staging="/s", size=5, is_block=False
    )
    assert (request.capacity_range.required_bytes, request.capacity_range.limit_bytes) == (5, 0)
    assert (request.volume_path, request.staging_target_path, dict(request.secrets)) == ("/p", "/s", {"k": "v"})


def test_tokens_are_an_object_by_audience():
    tokens = {
        "b": IssuedToken("t<2>", None, datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)),
        "": IssuedToken("t1", None, datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)),
    }
    text = encode_tokens(tokens)
    assert text == (
        '{"":{"token":"t1","expirationTimestamp":"2030-01-02T03:04:05Z"},'
        '"b":{"token":"t\\u003c2\\u003e","expirationTimestamp":"2030-01-02T03:04:05Z"}}'
    )
    assert json.loads(text)["b"]["token"] == "t<2>"


def test_secrets_and_tokens_are_never_shown():
    given = Given(capabilities=NONE, secrets={"k": "hush"}, volume_context={"t": "hush"})
    assert "hush" not in repr(given)
