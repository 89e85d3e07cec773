from datetime import timedelta

import pytest

from klet.testing.runs.part import Patience, decide_patience
from klet.testing.runs.records import Begun, Collected, EndedTest, Finished, RunOutcome, Started
from klet.testing.runs.tally import Tally, describe_counts, describe_progress, describe_skips, sum_counts, sum_skips

PATIENCE = Patience(outside=timedelta(seconds=300), exit=timedelta(seconds=120), grace=timedelta(seconds=60))


def passed(test):
    return (Begun(test), EndedTest(test, RunOutcome.PASSED))


def tally_of(*events):
    tally = Tally()
    for event in events:
        tally.read(event)
    return tally


STORY = (
    Started(),
    EndedTest("test_unreadable.py", RunOutcome.FAILED),
    Collected(5, 60.0),
    *passed("a"),
    Begun("b"),
    EndedTest("b", RunOutcome.SKIPPED, "no b: apt-get install b"),
    Begun("c"),
    EndedTest("c", RunOutcome.PASSED),
    EndedTest("c", RunOutcome.FAILED),
    Begun("d"),
    EndedTest("d", RunOutcome.XFAILED),
)


def test_a_tally_counts_what_counts():
    tally = tally_of(*STORY)
    assert dict(tally.counts) == {"passed": 2, "failed": 2, "skipped": 1, "xfailed": 1}
    assert tally.failed == ["test_unreadable.py", "c"]
    assert tally.skipped == {"no b: apt-get install b": 1}


def test_another_process_goes_on_counting():
    tally = tally_of(*STORY, Begun("e"), Started(), Collected(1, 60.0), *passed("f"), Finished(0))
    assert (tally.done, tally.expected) == (6, 6)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param((), "starting", id="nothing yet"),
        pytest.param(STORY[:1], "collecting tests", id="started"),
        pytest.param(STORY[:3], "0 of 5 done, 1 failed", id="collected"),
        pytest.param((*STORY, Begun("e")), "4 of 5 done, 2 failed; e for 1:05", id="a test runs"),
        pytest.param((Started(), *passed("a"), Begun("b")), "1 of ? done; b for 1:05", id="workers collect"),
        pytest.param((*STORY, *passed("e"), Finished(1)), "5 of 5 done, 2 failed", id="finished"),
    ],
)
def test_describe_progress(events, expected):
    assert describe_progress(tally_of(*events), running_for=timedelta(seconds=65.9)) == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param({}, "passed 0, failed 0, skipped 0", id="nothing"),
        pytest.param({"passed": 3, "failed": 1, "skipped": 2}, "passed 3, failed 1, skipped 2", id="the usual"),
        pytest.param(
            {"passed": 3, "xfailed": 1, "xpassed": 2},
            "passed 3, failed 0, skipped 0, xfailed 1, xpassed 2",
            id="what was expected to fail",
        ),
    ],
)
def test_describe_counts(counts, expected):
    assert describe_counts({RunOutcome(name): count for name, count in counts.items()}) == expected


def test_the_most_frequent_reason_comes_first():
    assert describe_skips({"b: y": 1, "a: x": 1, "c: z": 7}) == [
        "skipped 7: c: z",
        "skipped 1: a: x",
        "skipped 1: b: y",
    ]


def test_parts_are_summed_up():
    tallies = [tally_of(*STORY), tally_of(*STORY)]
    assert sum_counts(tallies)[RunOutcome.FAILED] == 4
    assert sum_skips(tallies) == {"no b: apt-get install b": 2}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param((), 300, id="a start"),
        pytest.param(STORY[:1], 300, id="a collection"),
        pytest.param(STORY[:3], 300, id="before the first test"),
        pytest.param(STORY, 3 * 60 + 60, id="a test, which has three phases"),
        pytest.param((Started(), Collected(1, 0), Begun("a")), None, id="a test without a deadline"),
        pytest.param((Started(), Begun("a")), 3 * 900 + 60, id="a test whose worker knows its deadline"),
        pytest.param((*STORY, Finished(0)), 120, id="an exit"),
    ],
)
def test_decide_patience(events, expected):
    allowed = None if expected is None else timedelta(seconds=expected)
    assert decide_patience(tally_of(*events), PATIENCE) == allowed
