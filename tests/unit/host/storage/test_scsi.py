"""Disks and multipath devices in a sysfs that a builder made."""

import re

import pytest

from klet.host.storage.scsi import DiskTree, ScsiError
from klet.testing.storage import DiskTrees


@pytest.fixture
def trees(tmp_path):
    return DiskTrees(tmp_path)


@pytest.fixture
def disks(trees):
    return DiskTree(sys=trees.sys, dev=trees.dev)


def test_the_multipath_device_of_a_disk_is_found_by_its_link(trees, disks):
    trees.add_disk("sda", by_path="fc-0x50-lun-0")
    trees.add_disk("sdb")
    dm = trees.add_multipath("dm-1", ["sda"])
    assert disks.multipath_of(str(trees.dev / "disk/by-path/fc-0x50-lun-0")) == str(dm)
    assert disks.multipath_of(str(trees.dev / "sdb")) == ""
    assert disks.multipath_of(str(dm)) == str(dm)
    assert disks.members_of(str(dm)) == [str(trees.dev / "sda")]
    assert disks.members_of(str(trees.dev / "sda")) == []


def test_a_disk_whose_name_is_the_end_of_another_ones_is_not_taken_for_it(trees, disks):
    trees.add_disk("sda")
    trees.add_disk("sdaa")
    trees.add_multipath("dm-0", ["sdaa"])
    assert disks.multipath_of(str(trees.dev / "sda")) == ""


@pytest.mark.parametrize("name", ["dm-", "dm-x", "dm-1 ", "dm-0/../sda", "xdm-0", "dm-1000000000"])
def test_what_only_looks_like_a_multipath_device_is_none(trees, disks, name):
    trees.add_disk("sda")
    (trees.sys / "block" / name.replace("/", "_") / "slaves" / "sda").mkdir(parents=True)
    assert disks.multipath_of(str(trees.dev / "sda")) == ""


def test_links_are_matched_as_a_whole(trees, disks):
    trees.add_disk("sda", by_path="ip-1.2.3.4:3260-iscsi-iqn.x-lun-1", by_id="scsi-36")
    trees.add_disk("sdb", by_path="ip-1.2.3.4:3260-iscsi-iqn.x-lun-10")
    found = disks.by_path(re.compile(re.escape("ip-1.2.3.4:3260-iscsi-iqn.x-lun-1")))
    assert [link.name for link in found] == ["ip-1.2.3.4:3260-iscsi-iqn.x-lun-1"]
    assert [link.name for link in disks.by_id(re.compile("scsi-36"))] == ["scsi-36"]


def test_a_machine_without_disks_has_none(tmp_path):
    disks = DiskTree(sys=tmp_path / "no", dev=tmp_path / "no")
    assert disks.by_path(re.compile(".*")) == []
    assert disks.multipath_of("/dev/sda") == ""
    disks.rescan_all()


def test_hosts_are_scanned_for_all_or_for_one_unit(trees, disks):
    first, second = trees.add_host(0), trees.add_host(7)
    (trees.sys / "class/scsi_host/host7 ").mkdir()
    disks.rescan_all()
    assert (first.read_text(), second.read_text()) == ("- - -", "- - -")
    disks.scan_unit(7, 3)
    assert (first.read_text(), second.read_text()) == ("- - -", "0 0 3")


def test_deleting_a_disk_goes_to_the_kernel_once_and_does_not_mind_one_that_is_gone(trees, disks):
    disk = trees.add_disk("sda")
    disks.delete(str(disk))
    assert (trees.sys / "block/sda/device/delete").read_text() == "1"
    trees.remove_disk("sda")
    disks.delete(str(disk))
    assert not (trees.sys / "block/sda/device/delete").exists()


def test_a_multipath_device_is_no_disk_to_delete(trees, disks):
    dm = trees.add_multipath("dm-0", [])
    with pytest.raises(ScsiError, match="no SCSI disk"):
        disks.delete(str(dm))


def test_a_link_to_nothing_is_an_error(trees, disks):
    (trees.dev / "gone").symlink_to(trees.dev / "sdz")
    with pytest.raises(ScsiError, match="does not exist"):
        disks.resolve(str(trees.dev / "gone"))
