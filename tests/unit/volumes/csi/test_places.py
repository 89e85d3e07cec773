"""Names and directories of CSI volumes."""

from pathlib import Path

import pytest

from klet.errors import KletError
from klet.volumes.csi.places import CsiLayout, attachment_name, device_name, inline_handle

ROOT = Path("/var/lib/kubelet")
LAYOUT = CsiLayout(ROOT)
CSI = ROOT / "plugins/kubernetes.io/csi"


def test_an_attachment_is_named_after_volume_driver_and_node():
    name = attachment_name("vol-0a1b", "ebs.csi.example.com", "node-1")
    assert name == "csi-226e7d79e67064f378f061ac727505747e707ea102dbb7cf718c00cb7f939806"


def test_an_inline_volume_is_named_after_pod_and_volume():
    handle = inline_handle("11111111-2222-3333-4444-555555555555", "scratch")
    assert handle == "csi-a46bec53679aafe7e6bc42077f33be9e5c533643ed1224b3bfbf2dd627bbf53c"


def test_a_device_is_named_after_driver_and_handle():
    assert device_name("ebs.csi.example.com", "vol-0a1b") == "ebs.csi.example.com^vol-0a1b"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        pytest.param(
            LAYOUT.staging("ebs.csi.example.com", "vol-0a1b"),
            CSI / "ebs.csi.example.com/f738d5eb646702a8a5f79d5435ac3a0048d440b49ea4000beae42aab32fb6143/globalmount",
            id="staging: the hash is of the handle alone",
        ),
        pytest.param(
            LAYOUT.target("u", "pvc-7f3a"),
            ROOT / "pods/u/volumes/kubernetes.io~csi/pvc-7f3a/mount",
            id="a pod's volume",
        ),
        pytest.param(
            LAYOUT.volume("u", "a/b"), ROOT / "pods/u/volumes/kubernetes.io~csi/a~b", id="a slash in a spec's name"
        ),
        pytest.param(LAYOUT.block_map("pv/1"), CSI / "volumeDevices/pv~1/dev", id="the devices of pods"),
        pytest.param(LAYOUT.block_data("pv"), CSI / "volumeDevices/pv/data", id="the file of a block volume"),
        pytest.param(LAYOUT.block_staging("pv"), CSI / "volumeDevices/staging/pv", id="a staged block volume"),
        pytest.param(LAYOUT.block_target("pv", "u"), CSI / "volumeDevices/publish/pv/u", id="a published one"),
    ],
)
def test_directories_are_upstreams(place, expected):
    assert place.path == expected


@pytest.mark.parametrize("name", ["", ".", "..", "a\0b", "x" * 300])
def test_a_name_that_is_no_name_of_a_file_is_refused(name):
    for lookup in (
        lambda: LAYOUT.volume("u", name),
        lambda: LAYOUT.volume(name, "v"),
        lambda: LAYOUT.staging(name, "h"),
        lambda: LAYOUT.block(name),
        lambda: LAYOUT.block_staging(name),
    ):
        with pytest.raises(KletError, match="is no name of a file"):
            lookup()
    with pytest.raises(KletError, match="is no name of a file"):
        LAYOUT.staging("../../etc", "h")
