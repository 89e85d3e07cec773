import pytest

from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.systemd import INFINITY, UnitProperty, resource_properties, round_quota, slice_properties

NEW = 252


def properties(resources, *, version=NEW, mode=CgroupMode.UNIFIED):
    return {each.name: each.value for each in resource_properties(resources, version=version, mode=mode)}


@pytest.mark.parametrize(
    ("quota", "period", "rounded"),
    [
        pytest.param(12500, 100000, 13000, id="125m becomes 130m"),
        pytest.param(10000, 100000, 10000, id="a full step stays"),
        pytest.param(1000, None, 1000, id="the default period is assumed"),
        pytest.param(-1, 100000, -1, id="unlimited stays"),
        pytest.param(0, 100000, 0, id="not given stays"),
        pytest.param(None, None, None, id="nothing stays"),
    ],
)
def test_round_quota(quota, period, rounded):
    assert round_quota(CgroupResources(cpu_quota=quota, cpu_period=period)).cpu_quota == rounded


def test_rounding_twice_changes_nothing():
    once = round_quota(CgroupResources(cpu_quota=12500, cpu_period=100000))
    assert round_quota(once) == once


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(CgroupResources(), {}, id="nothing given, nothing set"),
        pytest.param(CgroupResources(memory_limit=4096), {"MemoryMax": 4096}, id="memory"),
        pytest.param(CgroupResources(memory_limit=-1), {"MemoryMax": INFINITY}, id="unlimited memory"),
        pytest.param(CgroupResources(cpu_shares=1024), {"CPUWeight": 39}, id="shares as weight"),
        pytest.param(
            CgroupResources(cpu_quota=12500, cpu_period=100000),
            {"CPUQuotaPeriodUSec": 100000, "CPUQuotaPerSecUSec": 130000},
            id="quota per second",
        ),
        pytest.param(CgroupResources(cpu_quota=-1), {"CPUQuotaPerSecUSec": INFINITY}, id="no quota"),
        pytest.param(CgroupResources(pids_limit=100), {"TasksMax": 100}, id="pids"),
        pytest.param(CgroupResources(pids_limit=-1), {"TasksMax": INFINITY}, id="unlimited pids"),
        pytest.param(CgroupResources(cpuset="0-2,9"), {"AllowedCPUs": b"\x07\x02"}, id="CPUs as a mask"),
        pytest.param(
            CgroupResources(memory_min=10, memory_high=-1, unified={"memory.swap.max": "max", "io.max": "x"}),
            {"MemoryMin": 10, "MemoryHigh": INFINITY, "MemorySwapMax": INFINITY},
            id="unified values that systemd knows",
        ),
    ],
)
def test_resource_properties(resources, expected):
    assert properties(resources) == expected


def test_version_1_has_its_own_properties():
    resources = CgroupResources(memory_limit=4096, cpu_shares=1024, memory_min=5)
    assert properties(resources, mode=CgroupMode.HYBRID) == {"MemoryLimit": 4096, "CPUShares": 1024}


def test_an_old_systemd_gets_no_property_that_it_does_not_know():
    resources = CgroupResources(cpu_quota=10000, cpu_period=100000, cpuset="0")
    assert properties(resources, version=241) == {"CPUQuotaPerSecUSec": 100000}


def test_a_new_slice():
    described = slice_properties("a-b.slice", "a.slice")
    assert UnitProperty("Description", "s", "libcontainer container a-b.slice") in described
    assert UnitProperty("Wants", "as", ("a.slice",)) in described
    assert {each.name for each in described if each.value is True} == {
        "MemoryAccounting", "CPUAccounting", "IOAccounting", "TasksAccounting",
    }  # fmt: skip
