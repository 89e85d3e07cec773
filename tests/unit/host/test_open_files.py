import resource

import pytest

from klet.host.open_files import allow_open_files, limits_to_try


@pytest.mark.parametrize(
    ("wanted", "hard", "expected"),
    [
        pytest.param(1_000_000, 4096, ((1_000_000, 1_000_000), (4096, 4096)), id="more than the machine allows"),
        pytest.param(1000, 4096, ((1000, 1000), (1000, 4096)), id="less"),
        pytest.param(1000, resource.RLIM_INFINITY, ((1000, 1000), (1000, -1)), id="no limit at all"),
    ],
)
def test_limits(wanted, hard, expected):
    assert limits_to_try(wanted, hard=hard) == expected


def test_a_limit_that_cannot_be_had_is_no_error():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allow_open_files(2**62)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard >= before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], min(before[1], hard)))
