from datetime import UTC, datetime, timedelta

import pytest

from klet.journal.records import to_id
from klet.journal.timeline import Waiting, build_timeline
from klet.model.causes import Cause, Finding, FindingSubject
from klet.model.reasons import read_reason

START = datetime(2030, 1, 1, tzinfo=UTC)
POD = FindingSubject(namespace="ns", name="web", uid="u1")
APP = FindingSubject(namespace="ns", name="web", uid="u1", container="app")
NEXT_POD = FindingSubject(namespace="ns", name="web", uid="u2")
NEXT_APP = FindingSubject(namespace="ns", name="web", uid="u2", container="app")
NAMELESS = FindingSubject(namespace="ns", name="web")
DB = FindingSubject(namespace="ns", name="web", uid="u1", container="db")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def cause(
    number: int, seconds: float, decision: str, subject: FindingSubject = POD, parent: int | None = None, **fields
) -> Cause:
    finding = Finding(subject=subject, decider="test", decision=read_reason(decision), **fields)
    return Cause(id=to_id(number), parent=None if parent is None else to_id(parent), at=at(seconds), finding=finding)


def test_no_records_make_an_empty_story():
    timeline = build_timeline([])
    assert timeline.steps == ()
    assert timeline.waiting is None


def test_steps_are_ordered_indented_and_timed():
    story = build_timeline(
        [
            cause(3, 2.5, "StartContainer", APP, parent=2),
            cause(1, 0, "SyncPod"),
            cause(2, 0.5, "PullImage", APP, parent=1),
            cause(4, 4, "Ready"),
            cause(5, 5, "Unrelated", DB, parent=99),
        ]
    )
    reported = [(step.cause.finding.decision, step.depth, step.offset, step.lasted) for step in story.steps]
    assert reported == [
        ("SyncPod", 0, timedelta(0), timedelta(seconds=4)),
        ("PullImage", 1, timedelta(seconds=0.5), timedelta(seconds=2)),
        ("StartContainer", 2, timedelta(seconds=2.5), None),
        ("Ready", 0, timedelta(seconds=4), None),
        ("Unrelated", 0, timedelta(seconds=5), None),
    ]


def test_equal_steps_in_a_row_are_reported_once():
    story = build_timeline(
        [
            cause(1, 0, "Wait", APP, message="backing off"),
            cause(2, 10, "Wait", APP, message="backing off"),
            cause(3, 20, "Wait", APP, message="backing off"),
            cause(4, 40, "StartContainer", APP),
        ]
    )
    assert [(step.cause.finding.decision, step.times, step.lasted) for step in story.steps] == [
        ("Wait", 3, timedelta(seconds=40)),
        ("StartContainer", 1, None),
    ]


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        pytest.param([cause(1, 0, "Started")], None, id="nothing is announced"),
        pytest.param(
            [cause(1, 0, "PullImage", APP, next="image pulled", message="not present")],
            Waiting(on="image pulled", subject=APP, message="not present", since=at(0)),
            id="an announcement is open",
        ),
        pytest.param(
            [cause(1, 0, "PullImage", APP, next="image pulled"), cause(2, 1, "Started", APP)],
            None,
            id="a later step about the same thing closes it",
        ),
        pytest.param(
            [cause(1, 0, "SyncPod", next="containers start"), cause(2, 1, "Started", APP, parent=1)],
            None,
            id="a consequence closes it",
        ),
        pytest.param(
            [cause(1, 0, "PullImage", APP, next="image pulled"), cause(2, 1, "Started", DB)],
            Waiting(on="image pulled", subject=APP, message="", since=at(0)),
            id="a step about another thing does not",
        ),
        pytest.param(
            [cause(1, 0, "PullImage", APP, next="image pulled"), cause(2, 1, "Wait", DB, next="backoff over")],
            Waiting(on="backoff over", subject=DB, message="", since=at(1)),
            id="the newest open one is reported",
        ),
        pytest.param(
            [cause(1, 0, "Wait", APP, next="backoff over"), cause(2, 9, "Wait", APP, next="backoff over")],
            Waiting(on="backoff over", subject=APP, message="", since=at(0)),
            id="the wait began with the first of the equal records",
        ),
        pytest.param(
            [cause(1, 5, "Wait", APP, next="backoff over", since=at(2))],
            Waiting(on="backoff over", subject=APP, message="", since=at(2)),
            id="a record that knows since when is believed",
        ),
        pytest.param(
            [cause(1, 0, "Killing", APP, next="it ends"), cause(2, 1, "Stopped", parent=9), cause(3, 2, "Finished")],
            None,
            id="nothing is waited for once the pod is over",
        ),
        pytest.param(
            [cause(1, 0, "Killing", APP, next="it ends"), cause(2, 1, "Started", NEXT_APP)],
            None,
            id="what an earlier pod of the name waited for is history",
        ),
        pytest.param(
            [
                cause(1, 0, "Wait", NEXT_APP, next="backoff over"),
                cause(2, 1, "Stopped", NEXT_POD),
                cause(3, 2, "Wait", NEXT_APP, next="a second time"),
            ],
            Waiting(on="a second time", subject=NEXT_APP, message="", since=at(2)),
            id="a pod that comes again with its uid waits again",
        ),
    ],
)
def test_waiting(causes, expected):
    assert build_timeline(causes).waiting == expected


def test_each_pod_of_a_name_has_a_story_of_its_own():
    story = build_timeline(
        [
            cause(1, 0, "ManifestSettled", NAMELESS),
            cause(2, 1, "PodAdded"),
            cause(3, 10, "PodAdded", NEXT_POD),
            cause(4, 11, "Finished"),
            cause(5, 12, "Started", NEXT_APP),
            cause(6, 13, "ManifestRejected", NAMELESS),
        ]
    )
    reported = [
        (
            history.uid,
            history.began,
            [(step.cause.finding.decision, step.offset.total_seconds()) for step in history.steps],
        )
        for history in story.histories
    ]
    assert reported == [
        ("u1", at(0), [("ManifestSettled", 0), ("PodAdded", 1), ("Finished", 11)]),
        ("u2", at(10), [("PodAdded", 0), ("Started", 2), ("ManifestRejected", 3)]),
    ]
    assert [len(history.causes) for history in story.histories] == [3, 3]


def test_a_pod_that_comes_again_with_its_uid_begins_another_life():
    story = build_timeline(
        [
            cause(1, 0, "PodAdded"),
            cause(2, 1, "Finished"),
            cause(3, 2, "PodAdded", NEXT_POD),
            cause(4, 3, "Killing", NEXT_APP, next="it ends"),
            cause(5, 4, "PodAdded"),
            cause(6, 5, "Wait", APP, next="backoff over"),
            cause(7, 6, "PodAdded"),
        ]
    )
    reported = [(history.uid, [step.cause.finding.decision for step in history.steps]) for history in story.histories]
    # The last PodAdded is that of an agent which was restarted: the pod went on.
    assert reported == [
        ("u1", ["PodAdded", "Finished"]),
        ("u2", ["PodAdded", "Killing"]),
        ("u1", ["PodAdded", "Wait", "PodAdded"]),
    ]
    assert story.waiting is not None
    assert story.waiting.on == "backoff over"


def test_what_every_sync_decides_again_is_shown_once_per_run():
    story = build_timeline(
        [
            cause(1, 0, "MissingClusterDNS"),
            cause(2, 1, "Ready"),
            cause(3, 2, "MissingClusterDNS"),
            cause(4, 3, "Ready"),
            cause(5, 4, "MissingClusterDNS", NEXT_POD),
        ]
    )
    assert [(step.cause.finding.decision, step.times) for step in story.steps] == [
        ("MissingClusterDNS", 2),
        ("Ready", 2),
        ("MissingClusterDNS", 1),
    ]


def started(number: int, seconds: float) -> Cause:
    return cause(
        number, seconds, "AgentStarted", FindingSubject(), message="node n on containerd", next="read the pods"
    )


def test_starts_of_the_agent_are_shown_for_pods_that_ran_on():
    story = build_timeline(
        [
            cause(2, 1, "PodAdded"),
            cause(3, 2, "Started", APP),
            cause(5, 11, "PodAdded", message="the runtime has it from before"),
            cause(6, 12, "Adopted"),
            cause(7, 13, "Removed"),
            cause(9, 21, "PodAdded", NEXT_POD),
        ],
        node=[
            started(1, 0),
            started(4, 10),
            cause(5, 11, "NodeReady", FindingSubject()),
            started(8, 20),
            started(10, 22),
        ],
    )
    reported = [[step.cause.finding.decision for step in history.steps] for history in story.histories]
    assert reported == [
        ["PodAdded", "Started", "AgentRestarted", "PodAdded", "Adopted", "Removed"],
        ["PodAdded", "AgentRestarted"],
    ]
    restart = story.histories[0].steps[2]
    assert (restart.offset, restart.cause.finding.message) == (timedelta(seconds=9), "the agent was started again")
    # What is looked for in the records of a pod is what the pod did.
    assert [each.finding.decision for each in story.histories[1].causes] == ["PodAdded"]
    assert story.waiting is None


def test_each_start_of_the_agent_begins_a_life_of_the_node():
    story = build_timeline([started(1, 0), cause(2, 1, "NodeReady", FindingSubject()), started(3, 10)])
    reported = [[step.cause.finding.decision for step in history.steps] for history in story.histories]
    assert reported == [["AgentStarted", "NodeReady"], ["AgentStarted"]]
