import pytest

from klet.stats.rates import LONGEST_SPAN, CpuRates, CpuSample, compute_rate

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("base", "sample", "expected"),
    [
        pytest.param(None, CpuSample(10.0, SECOND, 1), None, id="without a sample before nothing is known"),
        pytest.param(CpuSample(0.0, 0, 1), CpuSample(10.0, 5 * SECOND, 1), SECOND // 2, id="half a CPU"),
        pytest.param(CpuSample(0.0, SECOND, 1), CpuSample(10.0, SECOND, 1), 0, id="equal counters are no use"),
        pytest.param(CpuSample(0.0, SECOND, 1), CpuSample(10.0, 1, 1), None, id="a counter that went back was reset"),
        pytest.param(CpuSample(10.0, 0, 1), CpuSample(10.0, SECOND, 1), None, id="no time has passed"),
        pytest.param(CpuSample(11.0, 0, 1), CpuSample(10.0, SECOND, 1), None, id="the time went back"),
        pytest.param(CpuSample(0.0, 0, 1), CpuSample(10.0, SECOND, 2), None, id="another cgroup has the path now"),
        pytest.param(CpuSample(0.0, 0, 1), CpuSample(LONGEST_SPAN + 1, SECOND, 1), None, id="too long ago"),
    ],
)
def test_the_rate_is_that_between_two_samples(base, sample, expected):
    assert compute_rate(base, sample) == expected


def test_a_reset_counter_is_the_base_of_the_next_rate():
    rates = CpuRates()
    found = [
        rates.update("/a", CpuSample(at, usage, 1)) for at, usage in ((0.0, 5 * SECOND), (10.0, 0), (20.0, SECOND))
    ]
    assert found == [None, None, SECOND // 10]


def test_samples_that_are_too_close_give_the_rate_before():
    rates = CpuRates()
    found = [
        rates.update("/a", CpuSample(at, usage, 1)) for at, usage in ((0.0, 0), (10.0, SECOND), (10.01, 2 * SECOND))
    ]
    assert found == [None, SECOND // 10, SECOND // 10]


def test_cgroups_that_are_gone_are_forgotten():
    rates = CpuRates()
    rates.put_base("/a", CpuSample(0.0, 0, 1))
    assert rates.has_base("/a", inode=1, now=1.0)
    rates.keep_only(frozenset({"/b"}))
    assert not rates.has_base("/a", inode=1, now=1.0)
