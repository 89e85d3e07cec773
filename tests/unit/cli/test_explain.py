from datetime import timedelta

import msgspec
import pytest

from klet.api.klet_v1 import (
    ExplainedCondition,
    ExplainedNode,
    ExplainedPod,
    Explanation,
    NodeExplanation,
    PodState,
    TimelineStep,
    Why,
)
from klet.cli.explain import render_explanation, render_node

POD = ExplainedPod(namespace="default", name="web-node")


def render(explanation: Explanation, *, is_whole: bool = False) -> list[str]:
    return render_explanation(explanation, width=80, is_whole=is_whole).splitlines()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        pytest.param(
            PodState(phase="Running", ready=True, containers_ready=2, containers=2),
            "Running, ready (2 of 2)",
            id="a healthy pod",
        ),
        pytest.param(
            PodState(phase="Pending", containers=1, restarts=1), "Pending, not ready (0 of 1), 1 restart", id="not yet"
        ),
        pytest.param(
            PodState(phase="Running", terminating=True, containers=1, restarts=4),
            "Running, terminating, not ready (0 of 1), 4 restarts",
            id="one on its way out",
        ),
        pytest.param(PodState(phase="Failed", containers=1), "Failed", id="one that is over"),
        pytest.param(PodState(containers=1), "no status yet, not ready (0 of 1)", id="one without a status"),
        pytest.param(PodState(known=False), "not on this node any more", id="one that is gone"),
        pytest.param(
            PodState(known=False, phase="Failed"), "not on this node any more, last seen Failed", id="gone after an end"
        ),
    ],
)
def test_what_the_pod_is(now, state, said):
    assert render(Explanation(pod=POD, now=now, state=state))[0] == f"default/web-node: {said}"


def test_why_since_when_and_what_comes_next(now):
    why = Why(
        reason="CrashLoopBackOff",
        message="container main ended with exit code 3",
        since=now - timedelta(seconds=65),
        next="start it again",
        next_at=now + timedelta(seconds=20),
    )
    assert render(Explanation(pod=POD, now=now, why=(why,)))[2:5] == [
        "Why     CrashLoopBackOff: container main ended with exit code 3",
        f"Since   {now - timedelta(seconds=65):%H:%M:%S} UTC (65s ago)",
        f"Next    start it again at {now + timedelta(seconds=20):%H:%M:%S} UTC (in 20s)",
    ]


@pytest.mark.parametrize(
    ("why", "said"),
    [
        pytest.param({"kind": "progress"}, ["Now     X: y"], id="something under way"),
        pytest.param({"next": "try"}, ["Why     X: y", "Next    try"], id="a next step without its time"),
        pytest.param(
            {"next": "try", "next_at": timedelta(0)}, ["Why     X: y", "Next    try at {0} (now)"], id="a step due now"
        ),
        pytest.param({"kind": "past", "since": timedelta(0)}, ["Before  X: y", "When    {0} (0s ago)"], id="history"),
        pytest.param(
            {"since": timedelta(days=-3)}, ["Why     X: y", "Since   {1} (3d ago)"], id="another day has its date"
        ),
    ],
)
def test_forms_of_a_reason(now, why, said):
    instants = {name: now + value if isinstance(value, timedelta) else value for name, value in why.items()}
    text = render(Explanation(pod=POD, now=now, why=(Why(reason="X", message="y", **instants),)))
    days = f"{now:%H:%M:%S} UTC", f"{now - timedelta(days=3):%Y-%m-%d %H:%M:%S} UTC"
    assert text[2 : 2 + len(said)] == [line.format(*days) for line in said]


def test_the_reasons_fit_on_a_screen_however_long_they_are(now):
    """Three reasons with their times, and the line about what happened, within 24 lines of 80 columns."""
    why = Why(reason="Failed", message="word " * 500, since=now, next="word " * 100, next_at=now)
    lines = render(Explanation(pod=POD, now=now, why=(why,) * 5))
    assert [line for line in lines if line.startswith("Why")] == [lines[2]] + [lines[2]] * 2
    assert max(map(len, lines)) <= 80
    assert lines.index("Since   " + f"{now:%H:%M:%S} UTC (0s ago)") < 24
    assert any("2 more: klet explain -o json has them" in line for line in lines)


def test_a_healthy_pod_says_so(now):
    text = render(Explanation(pod=POD, now=now, summary="nothing is wrong: it runs"))
    assert text[2] == "Well    nothing is wrong: it runs"
    assert text[-1] == "Nothing is recorded about it yet."


def test_what_happened_is_folded_unless_all_is_wanted(now):
    story = tuple(TimelineStep(at=now, decision=word) for word in ("PodAdded", "Created", "Started", "Started"))
    explanation = Explanation(pod=POD, now=now, timeline=story)
    assert render(explanation)[3:] == [
        f"What happened, from {now:%Y-%m-%d %H:%M:%S} UTC",
        "+    0ms  PodAdded",
        "+    0ms  Started (2 times)",
        "(2 more records: klet explain --all)",
    ]
    assert len(render(explanation, is_whole=True)) == 3 + 2 + 4


def test_the_agents_answer_is_read_whole(now):
    body = {
        "now": now.isoformat(),
        "state": {"containersReady": 1},
        "why": [{"kind": "past", "reason": "X", "nextAt": now.isoformat()}],
        "timeline": [{"at": now.isoformat(), "life": 2, "offsetSeconds": 1.5, "nextAt": now.isoformat()}],
    }
    read = msgspec.json.decode(msgspec.json.encode(body), type=Explanation)
    assert read.state.containers_ready == 1
    assert read.why[0].next_at == now
    assert (read.timeline[0].life, read.timeline[0].offset_seconds) == (2, 1.5)


def test_the_node_condition_by_condition(now):
    ready = ExplainedCondition(type="Ready", status="False", reason="KubeletNotReady", message="no network", since=now)
    enough = ExplainedCondition(type="MemoryPressure", status="False", reason="KubeletHasSufficientMemory")
    explanation = NodeExplanation(
        node=ExplainedNode(name="n1"),
        now=now,
        conditions=(ready, enough),
        why=(Why(reason="NetworkNotReady", message="no network", next="ask again"),),
        timeline=(TimelineStep(at=now, decision="AgentStarted"),),
    )
    assert render_node(explanation, width=80, is_whole=False).splitlines() == [
        "node/n1: not ready",
        "",
        "Why     NetworkNotReady: no network",
        "Next    ask again",
        "",
        "Conditions:",
        f"Ready is False, since {now:%H:%M:%S} UTC (KubeletNotReady: no network)",
        "MemoryPressure is False (KubeletHasSufficientMemory)",
        "",
        f"What happened, from {now:%Y-%m-%d %H:%M:%S} UTC",
        "+    0ms  AgentStarted",
    ]


def test_a_node_that_is_well(now):
    explanation = NodeExplanation(node=ExplainedNode(name="n1"), now=now, ready=True, summary="nothing is wrong")
    assert render_node(explanation, width=80, is_whole=True).splitlines()[:3] == [
        "node/n1: ready",
        "",
        "Well    nothing is wrong",
    ]
