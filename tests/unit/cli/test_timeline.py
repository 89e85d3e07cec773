from klet.cli.client import CauseRecord, CauseSubject, Explanation, WaitingFor
from klet.cli.timeline import render_explanation, render_record


def test_the_story_is_the_agents(now):
    explanation = Explanation(
        timeline=(CauseRecord(at=now),),
        text=("from 2030", "+0ms  PodAdded", "waiting for: a"),
        waiting_for=WaitingFor(on="a"),
    )
    assert render_explanation("default/web (Running)", explanation).splitlines() == [
        "default/web (Running)",
        "  from 2030",
        "  +0ms  PodAdded",
        "  waiting for: a",
    ]


def test_a_pod_that_waits_for_nothing():
    assert render_explanation("x", Explanation()) == "x\n  waiting for nothing\n"


def test_a_record_reads_as_in_the_story(now):
    record = CauseRecord(
        at=now,
        decision="Start",
        message="it is new",
        subject=CauseSubject(container="web"),
        measurements={"seconds": 10.0, "exitCode": 3},
    )
    assert render_record(record) == "web: Start: it is new [seconds=10 exitCode=3]"
