"""Links and directories of block volumes below the agent's root. Binds and locks are tested on real devices."""

from pathlib import Path

import pytest

from klet.errors import KletError
from klet.host.loop_devices import LoopDevices
from klet.volumes.device_host import BlockMapping
from klet.volumes.errors import VolumeSetupError
from klet.volumes.host_devices import DeviceFiles, is_in_use


@pytest.fixture
def loops(tmp_path):
    (tmp_path / "sys").mkdir()
    return LoopDevices(devices=tmp_path / "dev", sysfs=tmp_path / "sys")


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def files(root, loops):
    return DeviceFiles(root=root, loops=loops)


@pytest.fixture
def mapping(root):
    link = root / "pods" / "u" / "volumeDevices" / "example.org~disk" / "pv"
    return BlockMapping(map_path=str(root / "plugins" / "disk" / "volumeDevices" / "pv"), uid="u", link=link)


def test_a_link_announces_a_device_and_stays(files, mapping):
    files.announce(mapping)
    assert mapping.link.readlink() == Path(mapping.map_path) / "u"
    mapping.link.unlink()
    mapping.link.symlink_to("/dev/other")
    files.announce(mapping)
    assert mapping.link.readlink() == Path("/dev/other")


def test_nothing_that_is_there_is_unlinked_but_the_link(files, mapping):
    files.announce(mapping)
    other = mapping.link.with_name("other")
    other.symlink_to("/dev/other")
    files.unlink(mapping)
    files.unlink(mapping)
    assert [entry.name for entry in mapping.link.parent.iterdir()] == ["other"]


def test_a_volume_that_was_never_mapped_is_unmapped_without_harm(files, mapping):
    files.unlock(mapping)
    files.unbind(mapping)
    files.unlink(mapping)
    files.remove_map(mapping.map_path)
    assert files.mapped(mapping.map_path) == []


def test_a_file_that_a_kill_left_is_removed(files, mapping, root):
    Path(mapping.map_path).mkdir(parents=True)
    (Path(mapping.map_path) / "u").touch()
    assert files.mapped(mapping.map_path) == []
    files.unlock(mapping)
    files.unbind(mapping)
    files.remove_map(mapping.map_path)
    assert list((root / "plugins" / "disk" / "volumeDevices").iterdir()) == []


def test_only_a_block_device_is_mapped(files, mapping, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    with pytest.raises(VolumeSetupError, match="is not a block device"):
        files.map_device(mapping, secret)
    with pytest.raises(VolumeSetupError, match="is not a block device"):
        files.map_device(mapping, Path("/dev/null"))


@pytest.mark.parametrize("where", ["plugins", "plugins/disk/volumeDevices", "pods/u", "pods/u/volumeDevices"])
def test_a_link_on_the_way_leads_nowhere(files, mapping, root, tmp_path, where):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / where).parent.mkdir(parents=True, exist_ok=True)
    (root / where).symlink_to(outside)
    in_link = where.startswith("pods")
    with pytest.raises(KletError):
        files.announce(mapping) if in_link else files.map_device(mapping, Path("/dev/null"))
    with pytest.raises(KletError):
        files.unlink(mapping) if in_link else files.remove_map(mapping.map_path)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", ["../outside", "../outside/dir", ".", "a/../../outside", "../root2"])
def test_a_path_outside_of_the_root_is_refused(files, root, path):
    (root.parent / "outside" / "dir").mkdir(parents=True)
    (root.parent / "root2").mkdir()
    with pytest.raises(VolumeSetupError, match=r"not below|no plain path"):
        files.remove_map(f"{root}/{path}")
    with pytest.raises(VolumeSetupError, match=r"not below|no plain path"):
        files.remove_map(str(root.parent / "root2"))
    assert (root.parent / "outside" / "dir").is_dir()
    assert (root.parent / "root2").is_dir()


def test_the_map_of_a_volume_is_removed_with_what_is_in_it(files, mapping):
    (Path(mapping.map_path) / "dir").mkdir(parents=True)
    files.remove_map(mapping.map_path)
    assert not Path(mapping.map_path).exists()


def test_what_is_no_device_is_not_in_use(tmp_path):
    assert not is_in_use(tmp_path / "missing")
    assert not is_in_use(tmp_path)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        pytest.param("{path}\n", True, id="the path it was made with"),
        pytest.param("{path} (deleted)\n", True, id="a file that was removed since"),
        pytest.param("{path}2\n", False, id="another file"),
        pytest.param("", False, id="a free loop device"),
    ],
)
def test_the_loop_device_of_a_file_is_found_by_its_path(loops, tmp_path, text, is_found):
    backing = tmp_path / "file"
    (tmp_path / "sys" / "loop3" / "loop").mkdir(parents=True)
    (tmp_path / "sys" / "loop4").mkdir()
    (tmp_path / "sys" / "loop3" / "loop" / "backing_file").write_text(text.format(path=backing))
    assert loops.find(backing) == (tmp_path / "dev" / "loop3" if is_found else None)


def test_a_loop_device_that_is_not_there_is_free(loops, tmp_path):
    loops.release(tmp_path / "dev" / "loop9")


def test_without_loop_devices_that_is_said(loops, tmp_path):
    with (tmp_path / "file").open("w+") as file, pytest.raises(KletError, match="cannot make a loop device of"):
        loops.take(file.fileno(), tmp_path / "file")
