"""Where devices are mounted for all pods."""

from pathlib import Path

import pytest

from klet.volumes.device_places import build_place, read_place
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import Layout

LAYOUT = Layout(Path("/var/lib/kubelet"))
FC = "kubernetes.io/fc"


def test_a_place_is_below_the_directory_of_its_plugin_and_read_back():
    place = build_place(LAYOUT, FC, "50a-lun-0")
    assert str(place.path) == "/var/lib/kubelet/plugins/kubernetes.io/fc/50a-lun-0"
    assert read_place(LAYOUT, FC, str(place.path), depth=1) == place


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0", "x" * 256])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(VolumeSetupError, match="cannot be the name of a directory"):
        build_place(LAYOUT, FC, name)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc/passwd",
        "/var/lib/kubelet/plugins/kubernetes.io/fc",
        "/var/lib/kubelet/plugins/kubernetes.io/fc/a/b",
        "/var/lib/kubelet/plugins/kubernetes.io/fc/..",
        "/var/lib/kubelet/plugins/kubernetes.io/fcx/a",
        "/var/lib/kubelet/plugins/kubernetes.io/fc/../../../a",
        "var/lib/kubelet/plugins/kubernetes.io/fc/a",
    ],
)
def test_other_paths_are_no_places(path):
    with pytest.raises(VolumeSetupError):
        read_place(LAYOUT, FC, path, depth=1)
