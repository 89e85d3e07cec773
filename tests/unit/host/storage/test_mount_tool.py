"""The arguments of mount(8)."""

import pytest

from klet.host.storage.mount_tool import build_mount_arguments


@pytest.mark.parametrize(
    ("source", "fs_type", "options", "expected"),
    [
        pytest.param("srv:/e", "nfs", ("hard", "ro"), ("-t", "nfs", "-o", "hard,ro", "srv:/e", "/t"), id="all of them"),
        pytest.param("srv:/e", "nfs", (), ("-t", "nfs", "srv:/e", "/t"), id="no options"),
        pytest.param("/dev/sdb", "", ("ro",), ("-o", "ro", "/dev/sdb", "/t"), id="no type"),
        pytest.param("", "tmpfs", (), ("-t", "tmpfs", "/t"), id="no source"),
    ],
)
def test_arguments(source, fs_type, options, expected):
    assert build_mount_arguments(source, "/t", fs_type=fs_type, options=options) == expected
