import pytest

from klet.host.errors import MalformedFile
from klet.host.mountinfo import (
    containing_mount,
    find_mount,
    is_below,
    is_bound_on_itself,
    mounts_under,
    parse_mountinfo,
)

TABLE = r"""27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 35 98:0 /mnt1 /mnt/with\040space\134and\011tab rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue
40 27 0:40 / /var/lib/pods ro - tmpfs tmpfs rw
41 40 254:0 /data /var/lib/pods/a rw - ext4 /dev/vda rw
42 41 0:42 / /var/lib/pods/a/deep rw unbindable - tmpfs tmpfs rw
43 41 0:43 / /var/lib/pods/a/deep rw - tmpfs over rw
44 27 254:0 /data /elsewhere rw - ext4 /dev/vda rw
45 27 0:45 / /var/lib/pods-2 rw - tmpfs  rw
"""


@pytest.fixture
def table():
    return parse_mountinfo(TABLE)


def test_escapes_and_optional_fields(table):
    entry = table[1]
    assert entry.mount_point == "/mnt/with space\\and\ttab"
    assert entry.root == "/mnt1"
    assert entry.propagation == ("master:1", "shared:7")
    assert entry.is_shared
    assert entry.fs_type == "ext3"
    assert entry.super_options == ("rw", "errors=continue")


def test_an_empty_source(table):
    assert table[-1].source == ""


def test_the_last_of_stacked_mounts_is_the_visible_one(table):
    found = find_mount(table, "/var/lib/pods/a/deep")
    assert found is not None
    assert found.source == "over"


def test_nothing_mounted_there(table):
    assert find_mount(table, "/var/lib") is None


def test_the_mount_that_holds_a_path(table):
    found = containing_mount(table, "/var/lib/pods/a/file")
    assert found is not None
    assert found.mount_id == 41


def test_mounts_below_come_deepest_and_newest_first(table):
    assert [entry.mount_id for entry in mounts_under(table, "/var/lib/pods")] == [43, 42, 41, 40]


BOUND = r"""27 1 254:0 / / rw - ext4 /dev/vda rw
28 27 254:0 /var/lib/kubelet /var/lib/kubelet rw shared:1 - ext4 /dev/vda rw
29 28 254:0 /var/lib/kubelet /var/lib/kubelet rw shared:2 - ext4 /dev/vda rw
30 27 254:1 /state /disk rw - ext4 /dev/vdb rw
31 30 254:1 /state/kubelet /disk/kubelet rw shared:3 - ext4 /dev/vdb rw
32 27 254:0 /var/lib/other /srv/kubelet rw shared:4 - ext4 /dev/vda rw
33 27 254:2 / /mnt/kubelet rw shared:5 - ext4 /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/var/lib/kubelet", True, id="even if it was done twice"),
        pytest.param("/disk/kubelet", True, id="on a mount that shows a part of its disk"),
        pytest.param("/srv/kubelet", False, id="another directory is bound there"),
        pytest.param("/mnt/kubelet", False, id="a disk is mounted there"),
        pytest.param("/var/lib", False, id="nothing is mounted there"),
        pytest.param("/", False, id="the machine's root"),
    ],
)
def test_a_directory_that_is_bound_on_itself(path, expected):
    assert is_bound_on_itself(parse_mountinfo(BOUND), path) is expected


@pytest.mark.parametrize(
    ("path", "directory", "expected"),
    [("/a", "/a", True), ("/a/b", "/a", True), ("/ab", "/a", False), ("/x", "/", True), ("/", "/a", False)],
)
def test_is_below(path, directory, expected):
    assert is_below(path, directory) is expected


@pytest.mark.parametrize("line", ["", "x", "1 2 3", "a b c d e f - g h i", "1 2 0:1 / /mnt rw shared:1"])
def test_malformed(line):
    if line:
        with pytest.raises(MalformedFile, match="mountinfo line"):
            parse_mountinfo(line)
    else:
        assert parse_mountinfo(line) == ()
