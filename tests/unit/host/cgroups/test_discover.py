"""What is found out about the cgroups of a machine."""

import pytest

from klet.host.cgroups.discover import has_swap_controller


@pytest.mark.parametrize(
    ("version", "present", "own", "expected"),
    [
        pytest.param(1, "memory/memory.memsw.limit_in_bytes", "", True, id="version 1 with swap"),
        pytest.param(1, "memory/memory.limit_in_bytes", "", False, id="version 1 without"),
        pytest.param(2, "a/b/memory.swap.max", "0::/a/b\n", True, id="version 2 with swap"),
        pytest.param(2, "a/b/memory.max", "0::/a/b\n", False, id="version 2 without"),
        pytest.param(2, "memory.max", "0::/\n", False, id="the root has no limits"),
        pytest.param(2, "a/memory.swap.max", "1:cpu:/a\n", False, id="no version 2 membership"),
    ],
)
def test_whether_swap_can_be_limited(tmp_path, version, present, own, expected):
    file = tmp_path / "cgroup" / present
    file.parent.mkdir(parents=True)
    file.touch()
    (tmp_path / "own").write_text(own)
    assert has_swap_controller(version, root=tmp_path / "cgroup", own=tmp_path / "own") is expected
