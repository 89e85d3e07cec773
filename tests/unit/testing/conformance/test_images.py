import hashlib
import io
import json
import tarfile

import pytest

from klet.host.images import build_pause_image
from klet.testing.conformance.images import (
    ImageUnknown,
    Materials,
    agnhost_layers,
    find_image_name,
    read_image_names,
    registry_entries,
)
from klet.testing.conformance.userland import BUSYBOX, LINKED, Userland

MANIFEST = """
	initRegistry = RegistryList{
		PromoterE2eRegistry:      "registry.k8s.io/e2e-test-images",
		GcRegistry:               "registry.k8s.io",
	}

func initImageConfigs(list RegistryList) (map[ImageID]Config, map[ImageID]Config) {
	configs := map[ImageID]Config{}
	configs[BusyBox] = Config{list.PromoterE2eRegistry, "busybox", "1.37.0-1"}
	configs[Pause] = Config{list.GcRegistry, "pause", "3.10.1"}
	configs[Strange] = Config{list.NoRegistry, "x", "1"}
"""


@pytest.fixture
def userland(tmp_path):
    """The files that the packages would have, each with its name as content."""
    for name in (BUSYBOX, *LINKED, "usr/lib/m-linux-gnu/ld-linux-x86-64.so.2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    loader = tmp_path / "usr/lib/m-linux-gnu/ld-linux-x86-64.so.2"
    return Userland(
        root=tmp_path, applets=["busybox", "sh"], libraries={"bash": [loader]}, loader=f"/lib64/{loader.name}"
    )


def entries(layers):
    return {entry.path: entry for layer in layers for entry in layer}


def test_agnhost_has_what_the_suite_looks_for(userland):
    found = entries(agnhost_layers(Materials(manifest="", keys=(b"crt", b"key")), userland, b"program"))
    assert (found["agnhost"].data, found["agnhost"].mode) == (b"program", 0o755)
    assert found["agnhost-2"].target == "agnhost"
    assert (found["localhost.crt"].data, found["localhost.key"].data) == (b"crt", b"key")
    assert b"user-defined-in-image:x:1000:1000:" in found["etc/passwd"].data
    assert b"group-defined-in-image:x:50000:user-defined-in-image\n" in found["etc/group"].data
    assert found["bin/sh"].target == "busybox"
    assert (found["bin/bash"].target, found["usr/bin/bash"].data) == ("/usr/bin/bash", b"usr/bin/bash")


def test_programs_find_their_loader(userland):
    found = entries([userland.linked_layer()])
    assert found["lib64/ld-linux-x86-64.so.2"].target == "/lib/m-linux-gnu/ld-linux-x86-64.so.2"
    assert found["lib/m-linux-gnu/ld-linux-x86-64.so.2"].mode == 0o755


def test_the_registry_serves_an_image_by_tag_and_digest():
    archive = build_pause_image(name="pause:testing")
    found = {path: entry.data for path, entry in entries([registry_entries(archive)]).items()}
    digest = found["var/registry/pause/manifests/testing"].decode().strip()
    manifest = found[f"var/registry/pause/manifests/{digest}"]
    assert digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for part in (json.loads(manifest)["config"], *json.loads(manifest)["layers"]):
        blob = found[f"var/registry/pause/blobs/{part['digest']}"]
        assert part["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert len([name for name in tar.getnames() if name.startswith("blobs/")]) == 3


def test_names_are_made_of_registry_name_and_tag():
    assert read_image_names(MANIFEST) == {
        "BusyBox": "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
        "Pause": "registry.k8s.io/pause:3.10.1",
    }


def test_an_image_that_upstream_no_longer_has_is_named():
    with pytest.raises(ImageUnknown, match="no image Nginx"):
        find_image_name(read_image_names(MANIFEST), "Nginx")
