import errno
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.host import mounts
from klet.host.errors import FileError, MountError, MountInTree
from klet.host.files import remove_tree
from klet.host.mountinfo import find_mount
from klet.host.mounts import HostMounts, MountFlag, Propagation, parse_mount_options

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]


def make(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def test_a_mount_is_seen_with_its_options(place):
    target = make(place / "with space")
    mounts.mount("klet-inner", target, fs_type="tmpfs", options=["size=64k", "noexec", "ro"])
    entry = find_mount(mounts.list_mounts(), str(target))
    assert entry is not None
    assert entry.source == "klet-inner"
    assert {"ro", "noexec"} <= set(entry.options)
    assert mounts.is_mountpoint(target)
    assert not mounts.is_mountpoint(place / "elsewhere")


def test_unmounting_says_whether_there_was_something(place):
    target = make(place / "target")
    mounts.mount("klet-inner", target, fs_type="tmpfs")
    assert mounts.unmount(target)
    assert not mounts.unmount(target)
    assert not mounts.unmount(place / "missing")


def test_a_bind_mount_of_the_same_filesystem_is_a_mount_point(place):
    source, target = make(place / "source"), make(place / "target")
    (source / "file").write_text("x")
    mounts.bind(source, target)
    assert (target / "file").read_text() == "x"
    assert mounts.is_mountpoint(target)
    assert mounts.has_mounts_under(place)


def test_a_read_only_bind_keeps_the_source_writable(place):
    source, target = make(place / "source"), make(place / "target")
    mounts.bind(source, target, options=["bind", "ro", "nosuid"])
    with pytest.raises(OSError, match="Read-only"):
        (target / "file").touch()
    (source / "file").touch()
    assert mounts.unmount(target)


def test_a_file_can_be_bound(place):
    source, target = place / "source", place / "target"
    source.write_text("x")
    target.touch()
    mounts.bind(source, target, options=["ro"])
    assert target.read_text() == "x"
    mounts.cleanup_mount_point(target)
    assert not target.exists()
    assert source.exists()


def test_a_recursive_bind_brings_the_mounts_below(place):
    source, target = make(place / "source"), make(place / "target")
    mounts.mount("klet-inner", make(source / "inner"), fs_type="tmpfs")
    mounts.bind(source, target, recursive=True)
    assert mounts.is_mountpoint(target / "inner")


def test_a_tree_is_unmounted_deepest_first_with_stacked_mounts(place):
    tree = make(place / "tree")
    for target in (tree, tree, tree / "a", tree / "a" / "b"):
        target.mkdir(exist_ok=True)
        mounts.mount("klet-inner", target, fs_type="tmpfs")
    assert mounts.unmount_tree(tree) == 4
    assert not mounts.has_mounts_under(tree)


def test_a_busy_mount_goes_lazily(place):
    target = make(place / "target")
    mounts.mount("klet-inner", target, fs_type="tmpfs")
    with open(target / "file", "w"):
        with pytest.raises(MountError, match="busy") as caught:
            mounts.unmount(target)
        assert caught.value.errno == errno.EBUSY
        assert mounts.unmount(target, lazy=True)
    assert not mounts.is_mountpoint(target)


def test_propagation_is_set(place):
    target = make(place / "target")
    mounts.mount("klet-inner", target, fs_type="tmpfs")
    for propagation, tag in ((Propagation.SHARED, "shared:"), (Propagation.PRIVATE, "")):
        mounts.set_propagation(target, propagation)
        entry = find_mount(mounts.list_mounts(), str(target))
        assert entry is not None
        assert "".join(entry.propagation).startswith(tag)
        assert entry.is_shared == (propagation is Propagation.SHARED)


def test_unmounting_never_follows_a_symlink(place):
    target = make(place / "target")
    mounts.mount("klet-inner", target, fs_type="tmpfs")
    (place / "link").symlink_to(target)
    assert not mounts.unmount(place / "link")
    assert mounts.is_mountpoint(target)


def test_errors_keep_options_to_themselves(place):
    with pytest.raises(MountError) as caught:
        mounts.mount("klet-inner", make(place / "target"), fs_type="tmpfs", options=["password=secret"])
    assert "secret" not in str(caught.value)


def test_cleaning_up_removes_the_directory_and_is_fine_twice(place):
    target = make(place / "target")
    mounts.mount("klet-inner", target, fs_type="tmpfs")
    mounts.cleanup_mount_point(target)
    assert not target.exists()
    mounts.cleanup_mount_point(target)


def test_cleaning_up_never_deletes_data(place):
    target = make(place / "target")
    (target / "file").touch()
    with pytest.raises(FileError, match="not empty"):
        mounts.cleanup_mount_point(target)


def test_removing_a_tree_stops_at_a_mount(place):
    tree = make(place / "tree")
    source = make(place / "source")
    (source / "kept").touch()
    mounts.bind(source, make(tree / "sub" / "bound"))
    with pytest.raises(MountInTree, match="sub/bound: it is a mount point"):
        remove_tree(tree)
    assert (source / "kept").exists()
    mounts.unmount_tree(tree)
    remove_tree(tree)
    assert not tree.exists()


def test_removing_a_tree_that_is_itself_a_mount_is_refused(place):
    tree = make(place / "tree")
    mounts.bind(make(place / "source"), tree)
    with pytest.raises(MountInTree):
        remove_tree(tree)


def test_removing_a_tree_stops_at_a_bound_file(place):
    tree = make(place / "tree")
    (place / "source").write_text("x")
    (tree / "file").touch()
    mounts.bind(place / "source", tree / "file")
    with pytest.raises(MountInTree, match="tree/file: it is a mount point"):
        remove_tree(tree)
    assert (place / "source").read_text() == "x"


async def test_the_same_on_threads(place):
    threads = Threads(limit=1)
    host = HostMounts(threads=threads)
    source, target = make(place / "source"), make(place / "target")
    await host.bind(source, target, options=["ro"])
    assert await host.is_mountpoint(target)
    assert await host.has_mounts_under(place)
    assert any(entry.mount_point == str(target) for entry in await host.list())
    await host.set_propagation(target, Propagation.SLAVE)
    assert await host.unmount_tree(target) == 1
    await host.mount("klet-inner", target, fs_type="tmpfs")
    assert await host.unmount(target)
    await host.cleanup_mount_point(target)
    threads.close()
    assert target not in place.iterdir()


def test_options_are_split_as_mount_does():
    assert parse_mount_options(["ro", "noexec", "size=1m", "_netdev", "rw", "uid=0"]) == (
        MountFlag.NOEXEC,
        "size=1m,uid=0",
    )
