"""Paths of the machine, checked by their type."""

import os
import socket
import stat
from pathlib import Path

import pytest

from klet.errors import KletError
from klet.model.allocation import desired_allocation
from klet.volumes.errors import VolumeSetupError
from klet.volumes.plugins.base import MountRequest, VolumeAttributes
from klet.volumes.plugins.host_path import check_host_path
from klet.volumes.spec import VolumeSpec

NAME = "kubernetes.io/host-path"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "to-dir").symlink_to("dir")
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
        yield tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dir", "Directory"),
        ("to-dir", "Directory"),
        ("dir", "DirectoryOrCreate"),
        ("file", "File"),
        ("to-file", "File"),
        ("file", "FileOrCreate"),
        ("socket", "Socket"),
    ],
)
def test_a_path_is_what_it_should_be(place, name, kind):
    check_host_path(place / name, kind)


def test_devices():
    check_host_path(Path("/dev/null"), "CharDevice")
    with pytest.raises(VolumeSetupError, match="is not a block device"):
        check_host_path(Path("/dev/null"), "BlockDevice")


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("file", "Directory", "directory"),
        ("missing", "Directory", "directory"),
        ("file", "DirectoryOrCreate", "directory"),
        ("dangling", "File", "file"),
        ("dangling", "FileOrCreate", "file"),
        ("dir", "File", "file"),
        ("missing", "File", "file"),
        ("dir", "FileOrCreate", "file"),
        ("socket", "File", "file"),
        ("file", "Socket", "socket file"),
        ("file", "CharDevice", "character device"),
        ("file", "BlockDevice", "block device"),
    ],
)
def test_a_path_is_not_what_it_should_be(place, name, kind, what):
    with pytest.raises(VolumeSetupError) as caught:
        check_host_path(place / name, kind)
    assert str(caught.value) == f"hostPath type check failed: {place / name} is not a {what}"


def test_a_directory_is_made_with_its_parents(place):
    before = os.umask(0o022)
    try:
        check_host_path(place / "a" / "b", "DirectoryOrCreate")
    finally:
        os.umask(before)
    assert stat.S_IMODE((place / "a" / "b").stat().st_mode) == 0o755


def test_a_file_is_made_empty(place):
    check_host_path(place / "new", "FileOrCreate")
    assert (place / "new").read_bytes() == b""
    assert stat.S_IMODE((place / "new").stat().st_mode) == 0o644


def test_the_parent_of_a_file_must_be_there(place):
    with pytest.raises(KletError, match="No such file"):
        check_host_path(place / "a" / "new", "FileOrCreate")


@pytest.mark.parametrize("kind", ["Pipe", "SocketOrCreate", "OrCreate", "directory"])
def test_types_that_do_not_exist(place, kind):
    with pytest.raises(VolumeSetupError, match=f"^{kind} is an invalid volume type$"):
        check_host_path(place / "dir", kind)


def request_for(pod_with, **source):
    pod = pod_with({"hostPath": source})
    return MountRequest(pod=pod, allocation=desired_allocation(pod), spec=VolumeSpec(pod.spec.volumes[0]))


async def test_without_a_type_nothing_is_checked(machine, pod_with):
    request = request_for(pod_with, path="/nowhere/at/all")
    plugin = machine.plugins[NAME]
    assert await plugin.set_up(request) is None
    assert plugin.path("u", request.spec) == "/nowhere/at/all"
    assert plugin.attributes(request.spec) == VolumeAttributes()
    await plugin.tear_down("u", "v")


async def test_a_type_is_checked(machine, pod_with, place):
    with pytest.raises(VolumeSetupError, match="is not a file"):
        await machine.plugins[NAME].set_up(request_for(pod_with, path=str(place / "dir"), type="File"))


async def test_a_path_that_steps_back_is_refused(machine, pod_with):
    with pytest.raises(VolumeSetupError, match=r"^invalid HostPath `/a/\.\./b`: must not contain '\.\.'$"):
        await machine.plugins[NAME].set_up(request_for(pod_with, path="/a/../b"))
