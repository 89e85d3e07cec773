"""Directories of the machine that are bound into those of pods."""

import errno
import os
from pathlib import Path

import pytest

from klet.host.errors import MountError
from klet.testing.mounts import BOUND, NotedMounts
from klet.volumes.errors import MountStep, StepFailed, VolumeSetupError
from klet.volumes.local_directories import LocalDirectories, LocalDirectory, open_source
from klet.volumes.names import Layout

PLUGIN = "kubernetes.io/local-volume"
REFUSED = MountError("cannot mount: EPERM", errno=errno.EPERM)


class Place:
    """A directory of the machine, and the pods that may get it."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root / "klet")
        self.layout.pods.mkdir(parents=True)
        self.source = root / "disk"
        self.source.mkdir()
        (self.source / "data").write_text("kept")
        self.mounts = NotedMounts()
        self.directories = LocalDirectories(layout=self.layout, binder=self.mounts)

    def target(self, uid: str = "u") -> Path:
        return self.layout.volume(uid, PLUGIN, "pv")

    def directory(self, uid: str = "u", *options: str) -> LocalDirectory:
        return LocalDirectory(source=str(self.source), uid=uid, target=self.target(uid), options=options)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_directory_is_bound_with_its_options(place):
    found = place.directories.set_up(place.directory("u", "bind", "ro"))
    assert place.mounts.mounts == {place.target(): (str(place.source), BOUND, ("bind", "ro"))}
    assert (found.is_shared, found.was_bound, found.group) == (False, False, place.source.stat().st_gid)


def test_it_is_bound_only_once(place):
    place.directories.set_up(place.directory())
    found = place.directories.set_up(place.directory("u", "bind", "noexec"))
    assert (found.is_shared, found.was_bound) == (False, True)
    # What an agent that was killed in between has left out is made good.
    assert place.mounts.mounts[place.target()][2] == ("bind", "noexec")


def test_another_pod_has_it_too(place):
    place.directories.set_up(place.directory())
    assert place.directories.set_up(place.directory("w")).is_shared
    assert place.directories.set_up(place.directory()).is_shared


def test_a_mount_outside_of_pods_does_not_share_it(place):
    place.mounts.mounts[Path("/elsewhere")] = (str(place.source), BOUND, ())
    place.mounts.mounts[Path(f"{place.layout.pods}-of-others/x")] = (str(place.source), BOUND, ())
    assert not place.directories.set_up(place.directory()).is_shared


def test_a_refused_bind_leaves_no_directory(place):
    place.mounts.error = REFUSED
    with pytest.raises(MountError, match="EPERM"):
        place.directories.set_up(place.directory())
    assert not place.target().exists()
    place.mounts.error = None
    place.directories.set_up(place.directory())
    assert place.target() in place.mounts.mounts


def test_it_is_unbound_and_what_it_shows_is_kept(place):
    place.directories.set_up(place.directory())
    place.directories.tear_down(place.target())
    assert (place.mounts.mounts, place.target().exists()) == ({}, False)
    assert (place.source / "data").read_text() == "kept"
    place.directories.tear_down(place.target())


def test_a_directory_that_is_not_empty_is_never_emptied(place):
    place.directories.set_up(place.directory())
    del place.mounts.mounts[place.target()]  # someone else has unmounted it, and something was written there
    (place.target() / "precious").touch()
    with pytest.raises(Exception, match="not empty"):
        place.directories.tear_down(place.target())
    assert (place.target() / "precious").exists()


def test_a_refused_unmount_keeps_the_directory(place):
    place.directories.set_up(place.directory())
    place.mounts.error = REFUSED
    with pytest.raises(MountError):
        place.directories.tear_down(place.target())
    assert place.target().exists()


def test_a_link_in_place_of_the_pods_directory_is_not_followed(place, tmp_path):
    (tmp_path / "away").mkdir()
    place.target().parent.mkdir(parents=True)
    place.target().symlink_to(tmp_path / "away")
    with pytest.raises(Exception, match=r"[Nn]ot a directory|symbolic link"):
        place.directories.set_up(place.directory())
    assert place.mounts.mounts == {}


@pytest.mark.parametrize(
    ("path", "error"),
    [
        pytest.param("", "local path is not set", id="no path"),
        pytest.param("/a/../etc", "must not contain '..'", id="a step back"),
        pytest.param("..", "must not contain '..'", id="only a step back"),
        pytest.param("etc", "must be an absolute path", id="a relative path"),
        pytest.param("/etc\0x", "must be an absolute path", id="a NUL"),
        pytest.param("/nowhere/at/all", 'path "/nowhere/at/all" does not exist', id="a path that is not there"),
        pytest.param("/dev/null", "only directory and block device are supported", id="a device of characters"),
        pytest.param("/proc/self/status", "only directory and block device are supported", id="a file"),
        pytest.param("/" + "a" * 300, "File name too long", id="a name that is too long"),
    ],
)
def test_a_path_that_cannot_be_used(path, error):
    with pytest.raises(VolumeSetupError, match=error.replace("..", r"\.\.")), open_source(path):
        pass


def test_a_path_that_does_not_exist_fails_before_the_set_up():
    with pytest.raises(StepFailed) as caught, open_source("/nowhere/at/all"):
        pass
    assert caught.value.step is MountStep.NEW_MOUNTER


def test_a_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(VolumeSetupError, match="only directory"), open_source(str(tmp_path / "fifo")):
        pass


def test_links_on_the_way_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with open_source(str(tmp_path / "link")) as found:
        assert Path(f"/proc/self/fd/{found}").readlink() == tmp_path / "real"
