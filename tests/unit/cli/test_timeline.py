from datetime import timedelta

from klet.cli.client import CauseRecord, CauseSubject, Explanation
from klet.cli.timeline import render_explanation


def test_a_timeline_shows_distances_reasons_and_what_is_waited_for(now):
    first = CauseRecord(at=now, decider="sync.loop", decision="Accept", message="a new manifest")
    second = CauseRecord(
        at=now + timedelta(milliseconds=1250),
        subject=CauseSubject(container="web"),
        decision="Wait",
        message="it crashed",
        measurements={"restarts": 3},
        since=now,
        next="start it again",
    )
    explanation = Explanation(timeline=(first, second), waiting_for="the back-off to pass")
    assert render_explanation("default/web (Running)", explanation, now=now + timedelta(seconds=5)).splitlines() == [
        "default/web (Running)",
        "  2030-01-01 12:00:00.000           Accept: a new manifest",
        "                                    sync.loop",
        "  2030-01-01 12:00:01.250   +1.25s  web: Wait: it crashed [restarts=3]",
        "                                    since 12:00:00, 1.25s before; next: start it again",
        "waiting for: the back-off to pass (for 5.00s)",
    ]


def test_a_pod_that_waits_for_nothing(now):
    assert render_explanation("x", Explanation(), now=now) == "x\nwaiting for nothing\n"
