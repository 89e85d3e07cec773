import pytest

from klet.cli.client import CauseRecord, CauseSubject, Explanation, WaitingFor
from klet.cli.timeline import render_explanation, render_record


def test_the_story_is_the_agents(now):
    explanation = Explanation(
        timeline=(CauseRecord(at=now),), text=("+0ms  PodAdded", "waiting for 2s: a"), waiting_for=WaitingFor(on="a")
    )
    assert render_explanation("default/web (Running)", explanation).splitlines() == [
        "default/web (Running), since 2030-01-01 12:00:00 UTC",
        "  +0ms  PodAdded",
        "  waiting for 2s: a",
    ]


def test_a_pod_that_waits_for_nothing():
    assert render_explanation("x", Explanation()) == "x\n  waiting for nothing\n"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, "Start", id="the word alone"),
        pytest.param({"message": "it is new"}, "Start: it is new", id="with its reason"),
        pytest.param({"subject": CauseSubject(container="web")}, "web: Start", id="of a container"),
        pytest.param({"measurements": {"a": 1, "b": "x"}}, "Start [a=1, b=x]", id="with measurements"),
    ],
)
def test_render_record(now, more, expected):
    assert render_record(CauseRecord(at=now, decision="Start", **more)) == expected
