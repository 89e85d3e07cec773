from datetime import timedelta

import pytest

from klet.api.klet_v1 import CauseRecord, CauseSubject, TimelineStep
from klet.cli.timeline import fold_story, render_duration, render_folded, render_record, render_story


@pytest.fixture
def step(now):
    """A step so many seconds after the beginning."""

    def build(seconds: float, decision: str, message: str = "", *, container: str = "", **fields) -> TimelineStep:
        subject = CauseSubject(container=container, uid="u1")
        fields = {"subject": subject, **fields}
        return TimelineStep(
            at=now + timedelta(seconds=seconds), decision=decision, message=message, offset_seconds=seconds, **fields
        )

    return build


def test_the_whole_story(step, now):
    story = [
        step(0, "PodAdded", "it is new"),
        step(0.012, "PullImage", container="app", depth=1, measurements={"size": 4096, "load": 0.25}),
        step(3, "Wait", container="app", depth=2, times=2),
        step(0, "PodAdded", life=1, subject=CauseSubject()),
    ]
    assert render_story(story) == [
        f"from {now:%Y-%m-%d %H:%M:%S} UTC, uid u1",
        "+    0ms  PodAdded: it is new",
        "+   12ms    app: PullImage [size=4096 load=0.25]",
        "+   3.0s      app: Wait (2 times)",
        f"from {now:%Y-%m-%d %H:%M:%S} UTC",
        "+    0ms  PodAdded",
    ]


def test_the_short_timeline_shows_each_thing_once_when_it_was_last_so(step):
    story = [
        step(0, "PodAdded", life=0),
        step(0, "PodAdded", life=1),
        step(1, "Started", container="a", life=1),
        step(2, "BackOff", container="a", life=1, times=3),
        step(3, "Started", container="b", life=1),
        step(9, "Started", container="a", life=1),
        step(9, "BackOff", container="a", life=1),
    ]
    reported = [
        (line.step.subject.container, line.step.decision, line.step.at, line.times) for line in fold_story(story)
    ]
    assert reported == [
        ("", "PodAdded", story[1].at, 1),
        ("b", "Started", story[4].at, 1),
        ("a", "Started", story[5].at, 2),
        ("a", "BackOff", story[6].at, 4),
    ]


@pytest.mark.parametrize(
    ("decision", "more", "is_reported"),
    [
        pytest.param("Created", {}, False, id="what starting shows too"),
        pytest.param("MissingClusterDNS", {}, False, id="what is no trouble"),
        pytest.param("Pulled", {"measurements": {"alreadyPresent": True}}, False, id="a pull of nothing"),
        pytest.param("Pulled", {"message": 'Successfully pulled image "x"'}, True, id="a real pull"),
        pytest.param("Failed", {"measurements": {"reason": "ErrImagePull"}}, False, id="a failed pull reported again"),
        pytest.param("Failed", {"measurements": {"reason": "RunContainerError"}}, True, id="a failed start"),
    ],
)
def test_noise(step, decision, more, is_reported):
    story = [step(0, "PodAdded"), step(1, decision, **more)]
    assert (decision in [line.step.decision for line in fold_story(story)]) == is_reported


def test_a_line_is_cut_to_the_screen(step):
    [line] = fold_story([step(1, "Failed", "x" * 100)])
    text = render_folded(line, width=40)
    assert len(text) == 40
    assert text.endswith("x…")
    assert len(render_folded(line, width=200)) < 200


@pytest.mark.parametrize(
    ("more", "times", "expected"),
    [
        pytest.param({}, 1, "Start", id="the word alone"),
        pytest.param({"message": "it is new"}, 1, "Start: it is new", id="with its reason"),
        pytest.param({"subject": CauseSubject(container="web")}, 1, "web: Start", id="of a container"),
        pytest.param({"measurements": {"a": 1, "b": "x", "c": 10.0}}, 1, "Start [a=1 b=x c=10]", id="with numbers"),
        pytest.param({"message": "why"}, 3, "Start (3 times): why", id="several times"),
    ],
)
def test_render_record(now, more, times, expected):
    assert render_record(CauseRecord(at=now, decision="Start", **more), times=times) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0ms"),
        (-1, "0ms"),
        (0.0125, "12ms"),
        (1, "1.0s"),
        (59.94, "59.9s"),
        (125, "2m05s"),
        (11_400, "3h10m"),
        (187_200, "2d04h"),
    ],
)
def test_render_duration(seconds, expected):
    assert render_duration(timedelta(seconds=seconds)) == expected
