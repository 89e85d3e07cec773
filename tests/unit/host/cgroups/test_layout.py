from pathlib import Path

import pytest

from klet.host.cgroups.layout import CgroupMode, detect_layout
from klet.host.mountinfo import parse_mountinfo

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
35 31 0:30 / /var/lib/some/where/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:32 / /sys/fs/cgroup/other rw,relatime - cgroup cgroup rw,name=other
"""
BESIDE = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("table", "mode", "version"),
    [
        pytest.param(UNIFIED, CgroupMode.UNIFIED, 2, id="version 2 at the root"),
        pytest.param(V1, CgroupMode.V1, 1, id="version 1 alone"),
        pytest.param(V1 + BESIDE, CgroupMode.HYBRID, 1, id="version 2 beside version 1 is still version 1"),
    ],
)
def test_detect_mode(table, mode, version):
    layout = detect_layout(parse_mountinfo(table))
    assert layout is not None
    assert (layout.mode, layout.mode.version) == (mode, version)


def test_version_1_controllers():
    layout = detect_layout(parse_mountinfo(V1))
    assert layout is not None
    assert layout.controllers == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory"),
        "systemd": Path("/sys/fs/cgroup/systemd"),
    }
    assert layout.unified is None


def test_a_hybrid_host_knows_its_version_2_mount():
    layout = detect_layout(parse_mountinfo(V1 + BESIDE))
    assert layout is not None
    assert layout.unified == Path("/sys/fs/cgroup/unified")


def test_a_machine_without_cgroups():
    assert detect_layout(parse_mountinfo("22 27 0:21 / /proc rw - proc proc rw\n")) is None
