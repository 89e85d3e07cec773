from datetime import UTC, datetime

import pytest

from klet.testing.conformance.report import Report, SpecOutcome
from klet.testing.conformance.results import (
    Difference,
    RecordUnreadable,
    Result,
    diff_results,
    is_success,
    last_failures,
    merge_reports,
    read_result,
    render_result,
    write_result,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def run(**specs: bool) -> Report:
    return Report(
        outcomes=tuple(SpecOutcome(name=name, passed=passed, started=NOW, ended=NOW) for name, passed in specs.items())
    )


def result(*, passed=(), failed=(), flaky=(), runs=1, kubelet="klet") -> Result:
    return Result(
        release="v1.2.3",
        kubelet=kubelet,
        date="2026-01-02",
        runs=runs,
        seconds=9,
        focus=("f",),
        skip=(),
        passed=tuple(passed),
        failed=tuple(failed),
        flaky=tuple(flaky),
    )


def merge(*reports: Report) -> Result:
    return merge_reports(reports, release="v1.2.3", kubelet="klet", date="2026-01-02", seconds=9, focus=("f",), skip=())


def test_one_run_is_its_names_in_order():
    assert merge(run(b=True, a=True, c=False)) == result(passed="ab", failed="c")


def test_what_failed_once_is_failed_and_flaky_if_it_also_passed():
    assert merge(run(a=True, b=False, c=True), run(a=True, b=False, c=False)) == result(
        passed="a", failed="bc", flaky="c", runs=2
    )


def test_the_difference_to_the_recorded_run():
    made = diff_results(result(passed="abx", failed="cdy"), result(passed="acz", failed="bd"))
    assert made == Difference(
        only_upstream_passes=("c",), only_this_passes=("b",), both_fail=("d",), unknown=("x", "y")
    )


@pytest.mark.parametrize(
    ("made", "upstream", "expected"),
    [
        pytest.param(result(passed="ab"), result(passed="ab"), True, id="all pass"),
        pytest.param(result(passed="a", failed="b"), result(passed="a", failed="b"), True, id="upstream fails it too"),
        pytest.param(result(passed="a", failed="b"), result(passed="ab"), False, id="upstream passes it"),
        pytest.param(result(passed="a", failed="b"), result(passed="a"), False, id="upstream never ran it"),
        pytest.param(result(passed="a", failed="b"), None, False, id="there is no record"),
        pytest.param(result(passed="a"), None, True, id="there is no record, and nothing failed"),
    ],
)
def test_is_success(made, upstream, expected):
    assert is_success(made, None if upstream is None else diff_results(made, upstream)) is expected


def test_the_newest_failure_of_a_spec_counts():
    first, second = run(a=False, b=True), run(a=False)
    assert last_failures([first, second])["a"] is second.outcomes[0]
    assert set(last_failures([first, second])) == {"a"}


def test_what_is_printed():
    made = result(passed="ab", failed="cd", flaky="d", runs=2)
    upstream = result(passed="abc", failed="d")
    failures = {
        "c": SpecOutcome(name="c", passed=False, started=NOW, ended=NOW, message="late\nvery", location="e2e/pods.go:7")
    }
    assert render_result(made, diff_results(made, upstream), failures) == (
        "klet, Kubernetes v1.2.3: 2 of 4 passed in 9 s, 2 runs\n"
        "failed: 2\n  c\n    e2e/pods.go:7: late\n  d\n"
        "passed in one run and failed in another: 1\n  d\n"
        "passes with upstream's kubelet, not here: 1\n  c\n"
        "fails with both: 1\n  d\n"
    )


def test_what_is_printed_if_all_is_well():
    made = result(passed="ab")
    assert render_result(made, diff_results(made, made), {}) == (
        "klet, Kubernetes v1.2.3: 2 of 2 passed in 9 s\nnothing that passes with upstream's kubelet fails here\n"
    )
    assert "no recorded run" in render_result(made, None, {})


def test_a_result_is_read_as_it_was_written(tmp_path):
    path, made = tmp_path / "deep" / "x.json", result(passed="ab", failed="c")
    assert read_result(path) is None
    write_result(path, made)
    assert read_result(path) == made


def test_a_file_that_holds_no_result_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(RecordUnreadable, match=r"x\.json"):
        read_result(tmp_path / "x.json")
