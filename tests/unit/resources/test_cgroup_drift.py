"""What counts as a change by somebody else."""

import pytest

from klet.host.cgroups.resources import CgroupResources
from klet.resources.cgroup_drift import Drift, find_drift, merge_values

PAGES = 2 << 20


@pytest.mark.parametrize(
    ("wanted", "found", "version", "drifts"),
    [
        pytest.param({"cpu_shares": 512}, {"cpu_shares": 512}, 1, [], id="as it was written"),
        pytest.param({"cpu_shares": 512}, {"cpu_shares": 2}, 1, [Drift("CPU shares", 512, 2)], id="other shares"),
        pytest.param({"cpu_shares": 1024}, {"cpu_shares": 998}, 2, [], id="shares as a weight"),
        pytest.param({"cpu_shares": 1024}, {"cpu_shares": 2}, 2, [Drift("CPU shares", 1024, 2)], id="another weight"),
        pytest.param({}, {"cpu_shares": 7, "memory_limit": 1, "hugepages": {PAGES: 0}}, 1, [], id="not written"),
        pytest.param({"pids_limit": 9}, {"pids_limit": None}, 1, [], id="a controller that is not there"),
        pytest.param({"memory_limit": 10_000}, {"memory_limit": 8192}, 2, [], id="memory is kept in whole pages"),
        pytest.param({"memory_limit": 8192}, {"memory_limit": -1}, 2, [Drift("memory limit", 8192, -1)], id="no limit"),
        pytest.param({"memory_min": 8192}, {"memory_min": 0}, 2, [Drift("memory.min", 8192, 0)], id="not protected"),
        pytest.param({"pids_limit": 9}, {"pids_limit": -1}, 2, [Drift("process limit", 9, -1)], id="any processes"),
        pytest.param({"cpuset": "0-1"}, {"cpuset": "0,1"}, 1, [], id="the same CPUs"),
        pytest.param({"cpuset": "0-3"}, {"cpuset": "0"}, 1, [Drift("CPUs", "0-3", "0")], id="fewer CPUs"),
        pytest.param({"cpuset": "0-3"}, {"cpuset": ""}, 2, [Drift("CPUs", "0-3", "")], id="no CPUs of its own"),
        pytest.param({"hugepages": {PAGES: 1 << 62}}, {"hugepages": {PAGES: 0}}, 1,
                     [Drift("limit of 2MB pages", 1 << 62, 0)], id="no huge pages any more"),
        pytest.param({"hugepages": {PAGES: 1 << 62}}, {}, 1, [], id="no controller of huge pages"),
        pytest.param({"cpu_shares": 4, "pids_limit": 5}, {"cpu_shares": 2, "pids_limit": 2}, 1,
                     [Drift("CPU shares", 4, 2), Drift("process limit", 5, 2)], id="several values"),
    ],
)  # fmt: skip
def test_drift(wanted, found, version, drifts):
    found = find_drift(CgroupResources(**wanted), CgroupResources(**found), version=version, page_size=4096)
    assert list(found) == drifts


def test_a_drift_in_words():
    assert str(Drift("CPU shares", 512, 2)) == "CPU shares 2 instead of 512"


def test_the_first_of_two_values_counts():
    first = CgroupResources(memory_min=7, hugepages={1: 1})
    second = CgroupResources(memory_min=8, memory_limit=9, cpuset="0", hugepages={1: 2, 2: 2})
    merged = CgroupResources(memory_min=7, memory_limit=9, cpuset="0", hugepages={1: 1, 2: 2})
    assert merge_values(first, second) == merged
    assert merge_values(first, None) is first
