import pytest

from klet.host.cgroups.resources import (
    hugepage_limits,
    hugepage_unit,
    millicpu_from_quota,
    millicpu_from_shares,
    quota_from_millicpu,
    shares_from_millicpu,
    shares_from_weight,
    weight_from_shares,
)


@pytest.mark.parametrize(
    ("millicpu", "shares", "weight"),
    [
        (0, 2, 1), (1, 2, 1), (2, 2, 1), (100, 102, 4), (500, 512, 20), (1000, 1024, 39), (4000, 4096, 157),
        (256000, 262144, 10000), (300000, 262144, 10000),
    ],
)  # fmt: skip
def test_millicpu_to_shares_to_weight(millicpu, shares, weight):
    assert shares_from_millicpu(millicpu) == shares
    assert weight_from_shares(shares) == weight


@pytest.mark.parametrize(("weight", "shares"), [(39, 998), (4, 80), (1, 2), (10000, 262144)])
def test_weight_is_read_back_with_loss(weight, shares):
    assert shares_from_weight(weight) == shares


@pytest.mark.parametrize(
    ("millicpu", "period", "quota"),
    [
        pytest.param(0, 100000, 0, id="no limit"),
        pytest.param(5, 100000, 1000, id="raised to the kernel's minimum"),
        pytest.param(100, 100000, 10000, id="a tenth"),
        pytest.param(1500, 100000, 150000, id="more than one CPU"),
        pytest.param(100, 5000, 1000, id="raised with a short period too"),
    ],
)
def test_millicpu_to_quota(millicpu, period, quota):
    assert quota_from_millicpu(millicpu, period) == quota


@pytest.mark.parametrize(("shares", "millicpu"), [(0, 0), (1, 0), (2, 2), (102, 100), (1024, 1000), (1025, 1001)])
def test_shares_to_millicpu_rounds_up(shares, millicpu):
    assert millicpu_from_shares(shares) == millicpu


@pytest.mark.parametrize(("quota", "period", "millicpu"), [(-1, 100000, 0), (10000, 100000, 100), (999, 100000, 9)])
def test_quota_to_millicpu(quota, period, millicpu):
    assert millicpu_from_quota(quota, period) == millicpu


@pytest.mark.parametrize(("size", "unit"), [(64 << 10, "64KB"), (2 << 20, "2MB"), (1 << 30, "1GB"), (16 << 30, "16GB")])
def test_page_size_names(size, unit):
    assert hugepage_unit(size) == unit


def test_every_page_size_of_the_host_gets_a_limit():
    assert hugepage_limits({2 << 20: 4 << 20, 7: 1}, (1 << 30, 2 << 20)) == {"2MB": 4 << 20, "1GB": 0}
