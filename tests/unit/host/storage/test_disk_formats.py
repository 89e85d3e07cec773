"""What blkid prints, and the commands that make and grow filesystems."""

import pytest

from klet.host.storage.disk_formats import (
    UNKNOWN,
    DiskFormatError,
    build_format_command,
    build_grow_command,
    parse_blkid,
)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(b"DEVNAME=/dev/sdb\nTYPE=ext4\n", "ext4", id="a filesystem"),
        pytest.param(b"DEVNAME=/dev/sdb\nPTTYPE=gpt\n", UNKNOWN, id="a partition table"),
        pytest.param(b"TYPE=ext4\nPTTYPE=dos\n", UNKNOWN, id="a partition table counts more than a filesystem"),
        pytest.param(b"TYPE=ext4\nPTTYPE=\n", "ext4", id="an empty partition table is none"),
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"\xff\xfe=\n=\nnonsense", "", id="what is no setting is skipped"),
    ],
)
def test_what_is_on_a_disk(output, expected):
    assert parse_blkid(output) == expected


@pytest.mark.parametrize(
    ("fs_type", "expected"),
    [
        ("ext4", ("mkfs.ext4", "-F", "-m0", "/dev/sdb")),
        ("ext3", ("mkfs.ext3", "-F", "-m0", "/dev/sdb")),
        ("xfs", ("mkfs.xfs", "-f", "/dev/sdb")),
        ("btrfs", ("mkfs.btrfs", "/dev/sdb")),
    ],
)
def test_how_a_disk_is_formatted(fs_type, expected):
    assert build_format_command("/dev/sdb", fs_type) == expected


@pytest.mark.parametrize("fs_type", ["", "../../bin/sh", "ext4 -F", "a/b", "x" * 65, "ext4\0"])
def test_no_program_is_run_for_a_hostile_name_of_a_filesystem(fs_type):
    with pytest.raises(DiskFormatError, match="no name of a filesystem"):
        build_format_command("/dev/sdb", fs_type)


@pytest.mark.parametrize(
    ("fs_type", "expected"),
    [
        ("ext3", ("resize2fs", "/dev/sdb")),
        ("ext4", ("resize2fs", "/dev/sdb")),
        ("xfs", ("xfs_growfs", "-d", "/mnt")),
        ("btrfs", ("btrfs", "filesystem", "resize", "max", "/mnt")),
        ("vfat", None),
    ],
)
def test_how_a_filesystem_grows(fs_type, expected):
    assert build_grow_command(fs_type, disk="/dev/sdb", mounted_at="/mnt") == expected
