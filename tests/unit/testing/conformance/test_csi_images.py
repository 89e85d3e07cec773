import io
import json
import tarfile

import pytest

from klet.testing.conformance.csi_images import (
    choose_csi_images,
    list_image_names,
    make_csi_images,
    make_shell_images,
    missing_csi_programs,
)
from klet.testing.conformance.userland import BUSYBOX, LINKED, Userland
from klet.testing.control_plane.programs import CSI, ProgramMissing

REGISTRY = "registry.k8s.io/sig-storage"


@pytest.fixture
def userland(tmp_path):
    """The files that the packages would have, each with its name as content."""
    root = tmp_path / "userland"
    for name in (BUSYBOX, *LINKED):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return Userland(root=root, applets=["busybox", "losetup", "mount", "sh"], libraries={}, loader="/lib64/ld.so")


@pytest.fixture
def programs(tmp_path):
    """A directory with all programs, each with its name as content."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in CSI:
        (place / name).write_text(name)
        (place / name).chmod(0o755)
    return place


def read(archive):
    """The manifest, the configuration and the files of all layers of an image."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    (manifest,) = json.loads(members["manifest.json"])
    files = {}
    for layer in manifest["Layers"]:
        with tarfile.open(fileobj=io.BytesIO(members[layer])) as tar:
            for member in tar.getmembers():
                files[member.name] = (member, tar.extractfile(member).read() if member.isfile() else b"")
    return manifest, json.loads(members[manifest["Config"]])["config"], files


def test_every_tag_of_an_image_gets_the_same_program(userland, programs):
    names = [f"{REGISTRY}/hostpathplugin:v1.17.0", f"{REGISTRY}/hostpathplugin:v1.16.1"]
    made = dict(make_csi_images(names, userland, {"KLET_UPSTREAM_BIN": str(programs)}))
    assert sorted(made) == sorted(names)
    layers = [read(archive)[0]["Layers"] for archive in made.values()]
    assert layers[0] == layers[1]


def test_the_archive_has_the_name_that_the_suite_asks_for(userland, programs):
    name = f"{REGISTRY}/csi-attacher:v4.10.0"
    ((_, archive),) = make_csi_images([name], userland, {"KLET_UPSTREAM_BIN": str(programs)})
    assert read(archive)[0]["RepoTags"] == [name]


@pytest.mark.parametrize("program", CSI)
def test_the_program_is_at_the_root_and_is_the_entry_point(userland, programs, program):
    environment = {"KLET_UPSTREAM_BIN": str(programs)}
    ((_, archive),) = make_csi_images([f"{REGISTRY}/{program}:v1"], userland, environment)
    _, config, files = read(archive)
    assert config["Entrypoint"] == [f"/{program}"]
    member, content = files[program]
    assert (content.decode(), member.mode) == (program, 0o755)


def test_the_hostpath_driver_has_a_shell_and_the_tools_for_mounts(userland, programs):
    name = f"{REGISTRY}/hostpathplugin:v1.17.0"
    ((_, archive),) = make_csi_images([name], userland, {"KLET_UPSTREAM_BIN": str(programs)})
    files = read(archive)[2]
    assert {files[f"bin/{name}"][0].linkname for name in ("sh", "losetup", "mount")} == {"busybox"}


@pytest.mark.parametrize(
    ("name", "program"),
    [
        pytest.param(f"{REGISTRY}/csi-resizer:v2.0.0", "csi-resizer", id="an image of sig-storage"),
        pytest.param(f"{REGISTRY}/nfs-provisioner:v4.0.8", None, id="an image that klet cannot make"),
        pytest.param("registry.k8s.io/e2e-test-images/agnhost:2.59", None, id="an image of elsewhere"),
        pytest.param("example.com/csi-resizer:v2.0.0", None, id="the same name in another registry"),
        pytest.param(f"{REGISTRY}/csi-resizer", None, id="a name without a tag"),
        pytest.param(f"{REGISTRY}/../csi-resizer:v2.0.0", None, id="a name that is a path"),
    ],
)
def test_choose_csi_images(name, program):
    assert choose_csi_images([name]) == ({} if program is None else {program: (name,)})


def test_a_name_that_is_listed_twice_is_made_once():
    name = f"{REGISTRY}/livenessprobe:v2.17.0"
    assert choose_csi_images([name, name]) == {"livenessprobe": (name,)}


def test_nothing_is_made_while_a_program_is_missing(userland, programs):
    (programs / "csi-resizer").unlink()
    names = [f"{REGISTRY}/csi-attacher:v4.10.0", f"{REGISTRY}/csi-resizer:v2.0.0"]
    environment = {"KLET_UPSTREAM_BIN": str(programs)}
    assert missing_csi_programs(names, environment) == ("csi-resizer",)
    with pytest.raises(ProgramMissing, match=f"no csi-resizer in {programs}"):
        next(make_csi_images(names, userland, environment))


def test_a_program_that_no_listed_image_needs_may_be_missing(userland, programs):
    (programs / "csi-resizer").unlink()
    environment = {"KLET_UPSTREAM_BIN": str(programs)}
    assert len(list(make_csi_images([f"{REGISTRY}/csi-attacher:v4.10.0"], userland, environment))) == 1


def install_suite(place, script):
    (place / "e2e.test").write_text(f"#!/bin/sh\n{script}\n")
    (place / "e2e.test").chmod(0o755)
    return {"KLET_UPSTREAM_BIN": str(place)}


def test_the_suite_lists_its_images(tmp_path):
    environment = install_suite(tmp_path, '[ "$*" = --list-images ] && printf "a/b:1\\n\\nc/d:2\\n"')
    assert list_image_names(environment) == ["a/b:1", "c/d:2"]


def test_a_suite_that_lists_nothing_is_an_error(tmp_path):
    environment = install_suite(tmp_path, "echo broken >&2; exit 3")
    with pytest.raises(ProgramMissing, match=r"e2e\.test --list-images failed with exit code 3"):
        list_image_names(environment)


def test_an_image_without_the_program_has_a_shell(userland):
    name = f"{REGISTRY}/hostpathplugin:v1.17.0"
    ((made, archive),) = make_shell_images([name], userland)
    files = read(archive)[2]
    assert made == name
    assert files["bin/sh"][0].linkname == "busybox"
    assert "hostpathplugin" not in files
