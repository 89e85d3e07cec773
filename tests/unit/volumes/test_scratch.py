"""Scratch directories, their marker, and what a second start finds."""

import os
import stat

import pytest

from klet.errors import KletError
from klet.host.errors import MountError
from klet.volumes.errors import VolumeSetupError
from klet.volumes.scratch import Scratch, ScratchDirectories

GROUP = 4242 if os.geteuid() == 0 else os.getegid()


@pytest.fixture
def scratches(machine):
    return ScratchDirectories(mounter=machine.mounter)


@pytest.fixture
def scratch(machine):
    def make(medium="", options=(), group=None):
        path, marker = machine.path("kubernetes.io/empty-dir"), machine.marker("v")
        return Scratch(path=path, marker=marker, medium=medium, options=options, group=group, pod_uid="u")

    return make


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_is_for_everyone_whatever_the_umask(scratches, scratch):
    wanted = scratch()
    before = os.umask(0o077)
    try:
        scratches.set_up(wanted)
    finally:
        os.umask(before)
    assert mode(wanted.path) == 0o777
    assert wanted.marker.is_file()


def test_the_marker_lies_in_a_private_directory(scratches, scratch):
    scratches.set_up(scratch())
    assert mode(scratch().marker.parent) == 0o750


def test_a_group_gets_the_directory(scratches, scratch):
    scratches.set_up(scratch(group=GROUP))
    assert mode(scratch().path) == 0o2777
    assert scratch().path.stat().st_gid == GROUP


def test_what_is_ready_is_left_to_the_pod(scratches, scratch):
    scratches.set_up(scratch())
    scratch().path.chmod(0o700)
    (scratch().path / "file").touch()
    scratches.set_up(scratch(group=GROUP))
    assert mode(scratch().path) == 0o700
    assert (scratch().path / "file").exists()


def test_a_directory_that_somebody_removed_is_made_again(scratches, scratch):
    scratches.set_up(scratch())
    scratch().path.rmdir()
    scratches.set_up(scratch())
    assert scratch().path.is_dir()
    assert scratch().marker.is_file()


def test_memory_is_mounted_once(scratches, scratch, machine):
    wanted = scratch("Memory", ("size=1024",))
    scratches.set_up(wanted)
    scratches.set_up(wanted)
    assert machine.mounter.mounts == {wanted.path: ("tmpfs", "tmpfs", ("size=1024",))}


def test_memory_that_is_gone_is_mounted_again(scratches, scratch, machine):
    wanted = scratch("Memory")
    scratches.set_up(wanted)
    machine.mounter.unmount(wanted.path)
    scratches.set_up(wanted)
    assert wanted.path in machine.mounter.mounts


def test_memory_that_was_mounted_before_the_marker_is_kept(scratches, scratch, machine):
    """The agent was killed between the mount and the marker."""
    wanted = scratch("Memory")
    scratches.set_up(wanted)
    wanted.marker.unlink()
    scratches.set_up(wanted)
    assert wanted.marker.is_file()


def test_huge_pages_are_mounted(scratches, scratch, machine):
    wanted = scratch("HugePages-2Mi", ("pagesize=2Mi",))
    scratches.set_up(wanted)
    scratches.set_up(wanted)
    assert machine.mounter.mounts == {wanted.path: ("nodev", "hugetlbfs", ("pagesize=2Mi",))}


def test_huge_pages_of_another_size_are_in_the_way(scratches, scratch, machine):
    scratches.set_up(scratch("HugePages-2Mi", ("pagesize=2Mi",)))
    with pytest.raises(VolumeSetupError) as caught:
        scratches.set_up(scratch("HugePages-1Gi", ("pagesize=1Gi",)))
    path = scratch().path
    assert str(caught.value) == f"pod u: mounted dir {path} pagesize '2Mi' and requested medium size '1Gi' differ"


def test_huge_pages_of_any_size_will_do(scratches, scratch):
    scratches.set_up(scratch("HugePages-2Mi", ("pagesize=2Mi",)))
    scratches.set_up(scratch("HugePages", ("pagesize=1Gi",)))


def test_a_failed_mount_leaves_no_marker(scratches, scratch, machine):
    machine.mounter.error = MountError("no", errno=1)
    with pytest.raises(KletError, match=r"^no$"):
        scratches.set_up(scratch("Memory"))
    assert not scratch().marker.exists()


@pytest.mark.parametrize("medium", ["", "Memory", "HugePages"])
def test_everything_goes(scratches, scratch, machine, medium):
    wanted = scratch(medium)
    scratches.set_up(wanted)
    (wanted.path / "dir").mkdir()
    (wanted.path / "dir" / "file").touch()
    scratches.tear_down(wanted.path, wanted.marker)
    assert machine.mounter.mounts == {}
    assert not wanted.path.exists()
    assert not wanted.marker.parent.exists()


def test_taking_down_what_is_not_there(scratches, scratch):
    scratches.tear_down(scratch().path, scratch().marker)


def test_a_link_out_of_the_volume_is_not_followed(scratches, scratch, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    scratches.set_up(scratch())
    (scratch().path / "link").symlink_to(outside)
    scratches.tear_down(scratch().path, scratch().marker)
    assert (outside / "precious").exists()


def test_an_unmount_that_fails_removes_nothing(scratches, scratch, machine):
    wanted = scratch("Memory")
    scratches.set_up(wanted)
    (wanted.path / "file").touch()
    machine.mounter.error = MountError("busy", errno=16)
    with pytest.raises(MountError):
        scratches.tear_down(wanted.path, wanted.marker)
    assert (wanted.path / "file").exists()
