import resource

import pytest

from klet.host.own_process import allow_open_files, limits_to_try, set_oom_score


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


def test_the_oom_score_is_written(tmp_path):
    score = tmp_path / "oom_score_adj"
    score.write_text("0")
    set_oom_score(-999, score)
    assert score.read_text() == "-999"


def test_a_score_that_may_not_be_set_is_logged_and_no_error(tmp_path, caplog):
    caplog.set_level("INFO")
    set_oom_score(-999, tmp_path)
    assert "Failed to ApplyOOMScoreAdj" in caplog.text
