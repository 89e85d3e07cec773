import json
from datetime import UTC, datetime

import pytest

from klet.testing.conformance.report import ReportUnreadable, parse_report


def spec(state, *, kind="It", text="should run", **more):
    return {
        "ContainerHierarchyTexts": ["[sig-node] Pods", "when up"],
        "LeafNodeType": kind,
        "LeafNodeText": text,
        "State": state,
        "StartTime": "2026-01-02T03:04:05.000000001Z",
        "EndTime": "2026-01-02T03:04:15Z",
        "RunTime": 10,
        **more,
    }


def report(*specs, **suite):
    return parse_report(json.dumps([{"SuitePath": "x", "SpecReports": specs, **suite}]).encode())


def test_specs_that_ran_are_outcomes_in_order_of_their_names():
    made = report(spec("passed", text="b"), spec("skipped", text="c"), spec("failed", text="a"), spec("pending"))
    assert [(outcome.name, outcome.passed) for outcome in made.outcomes] == [
        ("[sig-node] Pods when up a", False),
        ("[sig-node] Pods when up b", True),
    ]
    assert made.unusable == ()


def test_a_failure_has_its_message_place_time_and_namespace():
    failure = {"Message": " too late \n", "Location": {"FileName": "k8s.io/x/test/e2e/pods.go", "LineNumber": 7}}
    events = [
        {"SpecEventType": "By", "Message": "Building a namespace api object, basename pods"},
        {"SpecEventType": "Node"},
        {"SpecEventType": "By", "Message": 'Destroying namespace "pods-123" for this suite.'},
    ]
    (outcome,) = report(spec("timedout", Failure=failure, SpecEvents=events)).outcomes
    assert (outcome.message, outcome.location, outcome.namespace) == ("too late", "e2e/pods.go:7", "pods-123")
    assert outcome.started == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert outcome.ended == datetime(2026, 1, 2, 3, 4, 15, tzinfo=UTC)


def test_a_long_message_is_cut():
    (outcome,) = report(spec("failed", Failure={"Message": "x" * 5000})).outcomes
    assert len(outcome.message) == 2001


@pytest.mark.parametrize(
    ("specs", "suite", "expected"),
    [
        pytest.param(
            [spec("failed", kind="SynchronizedBeforeSuite", text="", Failure={"Message": "no nodes"})],
            {},
            ("SynchronizedBeforeSuite: no nodes",),
            id="its set-up failed",
        ),
        pytest.param(
            [spec("passed")],
            {"SpecialSuiteFailureReasons": ["Interrupted by User"]},
            ("Interrupted by User",),
            id="Ctrl-C",
        ),
        pytest.param(
            [spec("passed")],
            {"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"]},
            ("Suite Timeout Elapsed",),
            id="late",
        ),
        pytest.param(None, {"SpecialSuiteFailureReasons": None}, (), id="nothing"),
    ],
)
def test_why_a_run_says_nothing(specs, suite, expected):
    assert report(*(specs or ()), **suite).unusable == expected


@pytest.mark.parametrize("data", [b"", b"{}", b'[{"SpecReports": 3}]'], ids=["empty", "no list", "no specs"])
def test_what_is_no_report_is_refused(data):
    with pytest.raises(ReportUnreadable, match="ginkgo's report"):
        parse_report(data)
