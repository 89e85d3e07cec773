"""Whose cgroup driver holds."""

import pytest

from klet.node.cgroup_driver import CgroupDriverUnknown, choose_cgroup_driver
from klet.wire import cri_v1_pb2 as cri


def says(driver) -> cri.RuntimeConfigResponse:
    return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=driver))


@pytest.mark.parametrize(
    ("answer", "configured", "expected"),
    [
        pytest.param(says(cri.SYSTEMD), "cgroupfs", "systemd", id="systemd wins over the configuration"),
        pytest.param(says(cri.CGROUPFS), "systemd", "cgroupfs", id="cgroupfs wins over the configuration"),
        pytest.param(says(cri.CGROUPFS), "cgroupfs", "cgroupfs", id="both agree"),
        pytest.param(cri.RuntimeConfigResponse(), "systemd", "systemd", id="a runtime that says nothing"),
    ],
)
def test_choose_cgroup_driver(answer, configured, expected):
    assert choose_cgroup_driver(answer, configured=configured) == expected


def test_an_unknown_driver():
    with pytest.raises(CgroupDriverUnknown, match=r"^runtime returned an unknown cgroup driver 7$"):
        choose_cgroup_driver(says(7), configured="cgroupfs")
