"""Files for the group of a pod."""

import os
import stat
from pathlib import Path

import pytest

from klet.errors import KletError
from klet.volumes.ownership import Ownership, change_ownership

# Only root may give files to groups that it is not in.
GROUP = 4242 if os.geteuid() == 0 else os.getegid()


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    (root / "dir" / "deep").mkdir(parents=True)
    (root / "dir" / "file").write_text("x")
    (root / "dir" / "file").chmod(0o600)
    for path in (root, root / "dir", root / "dir" / "deep"):
        path.chmod(0o700)
    return root


def test_everything_is_given_to_the_group(tree):
    change_ownership(tree, Ownership(GROUP))
    for path in (tree, tree / "dir", tree / "dir" / "deep"):
        assert (path.stat().st_gid, mode(path)) == (GROUP, 0o2770)
    file = tree / "dir" / "file"
    assert (file.stat().st_gid, mode(file)) == (GROUP, 0o660)


def test_a_read_only_volume_is_not_made_writable(tree):
    change_ownership(tree, Ownership(GROUP, read_only=True))
    assert mode(tree / "dir") == 0o2750
    assert mode(tree / "dir" / "file") == 0o640


def test_bits_are_added_and_never_taken(tree):
    file = tree / "dir" / "file"
    file.chmod(0o4755)
    change_ownership(tree, Ownership(GROUP))
    assert mode(file) == 0o4775


def test_the_target_of_a_link_is_left_alone(tree, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    group = outside.stat().st_gid
    (tree / "link").symlink_to(outside)
    (tree / "directory-link").symlink_to(tmp_path)
    change_ownership(tree, Ownership(GROUP))
    assert (tree / "link").lstat().st_gid == GROUP
    assert (outside.stat().st_gid, mode(outside)) == (group, 0o600)


def test_a_root_that_is_a_link_is_refused(tree, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tree)
    with pytest.raises(KletError, match="change the owner"):
        change_ownership(link, Ownership(GROUP))
    assert mode(tree) == 0o700


def test_a_deep_tree_does_not_matter(tmp_path):
    deepest = tmp_path
    for _ in range(200):
        deepest = deepest / "d"
    deepest.mkdir(parents=True)
    change_ownership(tmp_path / "d", Ownership(GROUP))
    assert deepest.stat().st_gid == GROUP


def test_no_descriptor_is_left_open(tree):
    before = len(list(Path("/proc/self/fd").iterdir()))
    change_ownership(tree, Ownership(GROUP))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("policy", "group", "bits", "skipped"),
    [
        pytest.param(None, GROUP, 0o2770, False, id="no policy: always"),
        pytest.param("Always", GROUP, 0o2770, False, id="always"),
        pytest.param("OnRootMismatch", None, 0o2770, False, id="another group"),
        pytest.param("OnRootMismatch", GROUP, 0o2700, False, id="another mode"),
        pytest.param("OnRootMismatch", GROUP, 0o770, False, id="no setgid bit"),
        pytest.param("OnRootMismatch", GROUP, 0o2770, True, id="all as it should be"),
    ],
)
def test_the_walk_is_left_out_if_the_root_is_right(tree, policy, group, bits, skipped):
    if group is not None:
        os.chown(tree, -1, group)
    elif os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")
    tree.chmod(bits)
    change_ownership(tree, Ownership(GROUP, policy=policy))
    assert (mode(tree / "dir" / "file") == 0o600) is skipped


def test_a_read_only_root_needs_fewer_bits(tree):
    os.chown(tree, -1, GROUP)
    tree.chmod(0o2550)
    change_ownership(tree, Ownership(GROUP, read_only=True, policy="OnRootMismatch"))
    assert mode(tree / "dir" / "file") == 0o600
