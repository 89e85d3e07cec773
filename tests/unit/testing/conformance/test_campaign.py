import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klet.testing.conformance.campaign import (
    CampaignRequest,
    NothingToRun,
    choose_selection,
    choose_yardstick,
    describe_failures,
    describe_selection,
    make_directories,
    read_time,
    read_yardstick,
    render_json,
    select_lines,
)
from klet.testing.conformance.report import Report, SpecOutcome
from klet.testing.conformance.results import Result, write_result
from klet.testing.conformance.spec_sets import NODE, Selection, exactly

START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
BEGIN = datetime(2026, 11, 16, 12, 0, 0).astimezone()
END = BEGIN + timedelta(seconds=10)
LOG = """\
I1116 11:59:50.000000       1 a.py:1] "before"
I1116 12:00:01.000000       1 a.py:1] "first" pod="other-7/x"
W1116 12:00:02.000000       1 a.py:1] "mine" pod="pods-12/x"
Traceback of mine
E1116 12:00:09.000000       1 a.py:1] "third"
I1116 12:00:20.000000       1 a.py:1] "after"
trace of after
""".splitlines(keepends=True)


def request(results: Path, *, only_failed: bool = False, kubelet: str = "klet", keep: bool = False) -> CampaignRequest:
    return CampaignRequest(
        kubelet=kubelet,
        spec_set="node",
        selection=NODE.selection,
        only_failed=only_failed,
        procs=6,
        repeat=1,
        keep=keep,
        as_json=False,
        results=results,
        records=results / "records",
    )


def result(*failed: str) -> Result:
    return Result(
        release="v1", kubelet="klet", date="d", runs=1, seconds=1, focus=(), skip=(), passed=("a",), failed=failed
    )


def test_the_specs_of_the_request_run(tmp_path):
    assert choose_selection(request(tmp_path, only_failed=False)) == NODE.selection


def test_what_failed_last_runs_again(tmp_path):
    write_result(tmp_path / "result.json", result("b", "c"))
    assert choose_selection(request(tmp_path, only_failed=True)) == exactly(["b", "c"])


def test_without_a_last_run_there_is_nothing_to_repeat(tmp_path):
    with pytest.raises(NothingToRun, match="no last run of klet"):
        choose_selection(request(tmp_path, only_failed=True))


def test_without_a_failure_there_is_nothing_to_repeat(tmp_path):
    write_result(tmp_path / "result.json", result())
    with pytest.raises(NothingToRun, match="nothing failed"):
        choose_selection(request(tmp_path, only_failed=True))


def outcome(*, passed: bool) -> SpecOutcome:
    return SpecOutcome(
        name="fine" if passed else "broken",
        passed=passed,
        started=START,
        ended=START + timedelta(seconds=5),
        message="" if passed else "one\ntwo",
        location="" if passed else "e2e/pods.go:7",
    )


def test_a_failed_spec_stands_beside_what_the_agent_said():
    at = START.astimezone()
    log = f'W{at:%m%d} {at:%H:%M:%S}.500000       1 a.py:1] "slow"\n'
    said = describe_failures(Report(outcomes=(outcome(passed=False), outcome(passed=True))), log)
    assert said == [
        "== broken",
        "12:00:00 to 12:00:05, namespace unknown",
        "  e2e/pods.go:7",
        "  one",
        "  two",
        "-- the agent:",
        f"  {log.strip()}",
        "",
    ]


def test_the_result_as_json():
    shown = json.loads(render_json(result("broken"), None, {"broken": outcome(passed=False)}))
    assert shown["result"]["failed"] == ["broken"]
    assert shown["difference"] is None
    assert shown["failures"] == [{"name": "broken", "message": "one\ntwo", "location": "e2e/pods.go:7"}]


def test_a_run_works_beside_the_files_of_the_last_one(tmp_path):
    asked = request(tmp_path / "node")
    assert asked.working == tmp_path / "node.unfinished"
    make_directories(asked.working, 3)
    (asked.working / "run-1" / "report.json").touch()
    assert make_directories(asked.working, 2) == [asked.working / "run-1", asked.working / "run-2"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["node.unfinished", "run-1", "run-2"]


@pytest.mark.parametrize(
    ("kubelet", "keep", "expected"),
    [
        pytest.param("klet", False, "kept", id="klet is compared with what was kept of upstream"),
        pytest.param("klet", True, "kept", id="also when its result is kept"),
        pytest.param("upstream", False, "kept", id="upstream is compared with its last record"),
        pytest.param("upstream", True, "made", id="a new record of upstream is the yardstick itself"),
    ],
)
def test_choose_yardstick(tmp_path, kubelet, keep, expected):
    made, kept = result("made"), result("kept")
    asked = request(tmp_path, kubelet=kubelet, keep=keep)
    write_result(asked.record("upstream"), kept)
    assert choose_yardstick(asked, made).failed == (expected,)


def test_specs_of_other_sets_are_compared_with_their_records(tmp_path):
    asked = request(tmp_path)
    write_result(asked.record("upstream"), result("b"))
    write_result(asked.record("upstream", "storage"), result("c"))
    assert read_yardstick(asked).failed == ("b", "c")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        pytest.param(Selection(("a", "b"), ("c",)), "focus a | b, skip c", id="patterns"),
        pytest.param(Selection(), "focus everything, skip nothing", id="no patterns"),
        pytest.param(exactly("abcde"), "focus 5 names, skip nothing", id="too many to show"),
    ],
)
def test_describe_selection(selection, expected):
    assert describe_selection(selection) == expected


def select(**options):
    return [line.partition("] ")[2] or line for line in select_lines(LOG, started=BEGIN, ended=END, **options)]


def test_the_lines_of_a_window_with_those_that_have_no_date():
    assert select() == ['"first" pod="other-7/x"', '"mine" pod="pods-12/x"', "Traceback of mine", '"third"']


def test_lines_that_name_the_namespace_are_enough():
    assert select(namespace="pods-12") == ['"mine" pod="pods-12/x"']


def test_a_namespace_that_nobody_names_changes_nothing():
    assert len(select(namespace="none-1")) == 4


def test_the_last_ones_count():
    assert select(limit=1) == ['"third"']


@pytest.mark.parametrize("line", ["", "no date", "I9999 12:00:00.000000 1 x", "I1116 12:00:00"])
def test_a_line_without_a_date(line):
    assert read_time(line, near=BEGIN) is None
