from pathlib import Path

import pytest

from klet.host import mounts
from klet.host.errors import FileMissing
from klet.host.filesystems import Magic, filesystem_type, is_mount_root

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]


def test_a_tmpfs_is_known_by_its_type(place):
    assert filesystem_type(place) == Magic.TMPFS
    assert filesystem_type(Path("/proc")) == 0x9FA0


def test_a_mount_is_distinguished_from_a_directory(place):
    inner = place / "inner"
    inner.mkdir()
    assert is_mount_root(place)
    assert not is_mount_root(inner)


def test_a_bind_mount_of_the_same_filesystem_is_seen(place):
    source, target = place / "source", place / "target"
    source.mkdir()
    target.mkdir()
    mounts.bind(source, target)
    assert is_mount_root(target)


def test_a_link_to_a_mount_is_none(place):
    link = place / "link"
    link.symlink_to(place)
    assert not is_mount_root(link)


@pytest.mark.parametrize("look", [filesystem_type, is_mount_root])
def test_what_is_not_there_is_said(place, look):
    with pytest.raises(FileMissing):
        look(place / "missing")
