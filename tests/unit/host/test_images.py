import hashlib
import io
import json
import tarfile

import pytest

from klet.host.errors import ProcessFailed
from klet.host.images import (
    ImageConfig,
    build_busybox_image,
    build_image,
    build_pause_image,
    directory,
    file,
    import_image,
    symlink,
)


def unpack(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}


def blob(files, descriptor):
    data = files["blobs/" + descriptor["digest"].replace(":", "/")]
    assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (descriptor["size"], descriptor["digest"])
    return data


def read(data):
    """(annotations, config, layers) of an image, followed by digests from the index."""
    files = unpack(data)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, entry))
    config = json.loads(blob(files, manifest["config"]))
    return entry["annotations"], config, [blob(files, layer) for layer in manifest["layers"]]


def members(layer):
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return {member.name: member for member in archive}


SMALL = {
    "name": "example.com/small:2",
    "layers": [[directory("d", 0o750, uid=7), file("d/f", "text\n", gid=8)], [symlink("l", "d/f")]],
    "config": ImageConfig(
        entrypoint=("/run",), user="7", labels={"a": "b"}, volumes=("/v",), architecture="arm64", environment=()
    ),
}


def test_the_same_input_gives_the_same_bytes():
    assert build_image(**SMALL) == build_image(**SMALL)


def test_the_image_says_its_name_and_how_to_run():
    names, config, layers = read(build_image(**SMALL))
    assert names == {"io.containerd.image.name": "example.com/small:2", "org.opencontainers.image.ref.name": "2"}
    assert (config["architecture"], config["os"]) == ("arm64", "linux")
    assert config["config"] == {"Entrypoint": ["/run"], "User": "7", "Labels": {"a": "b"}, "Volumes": {"/v": {}}}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]


def test_layers_keep_kind_mode_and_owner():
    _, _, (first, second) = read(build_image(**SMALL))
    entry = members(first)
    assert (entry["d"].isdir(), entry["d"].mode, entry["d"].uid) == (True, 0o750, 7)
    assert (entry["d/f"].size, entry["d/f"].mode, entry["d/f"].gid) == (5, 0o644, 8)
    assert (members(second)["l"].issym(), members(second)["l"].linkname) == (True, "d/f")


def test_docker_reads_the_archive_too():
    files = unpack(build_image(**SMALL))
    (docker,) = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == ["example.com/small:2"]
    assert all(path in files for path in (docker["Config"], *docker["Layers"]))


def test_the_pause_image_is_one_program_that_is_not_root():
    names, config, (layer,) = read(build_pause_image(architecture="amd64"))
    assert names["io.containerd.image.name"] == "klet.local/pause:1"
    assert (config["config"]["Entrypoint"], config["config"]["User"]) == (["/pause"], "65535:65535")
    assert {name: member.mode for name, member in members(layer).items()} == {"pause": 0o755}


def test_the_busybox_image_has_its_applets_and_a_home():
    names, config, (layer,) = read(build_busybox_image(binary=b"program", applets=["sh", "ls", "busybox"]))
    entries = members(layer)
    assert names["io.containerd.image.name"] == "klet.local/busybox:1"
    assert config["config"]["Cmd"] == ["sh"]
    assert (entries["bin/sh"].linkname, entries["bin/ls"].linkname) == ("busybox", "busybox")
    assert (entries["bin/busybox"].isfile(), entries["bin/busybox"].mode) == (True, 0o755)
    assert (entries["tmp"].mode, entries["root"].mode) == (0o1777, 0o700)


async def test_an_import_without_ctr_says_so(tmp_path):
    with pytest.raises(ProcessFailed, match="cannot run no-such-ctr: No such file or directory"):
        await import_image(tmp_path / "x.tar", address="/none", ctr="no-such-ctr")
