import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from klet.api.klet_v1 import Explanation, NodeExplanation, RecordedPods, encode
from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeCondition, NodeStatus
from klet.api.times import Time
from klet.journal.queries import JournalQueries
from klet.journal.store import Journal
from klet.model.causes import Finding, FindingSubject
from klet.model.pods import subject_of
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock
from klet.testing.strict import decode_strictly

POD = make_pod(name="web-node", uid="u2")
EARLIER = make_pod(name="web-node", uid="u1", deleted=True)


def as_sent(answer):
    """What a client reads; the answer fits the schema to the letter."""
    body = encode(answer)
    decode_strictly(type(answer), body)
    return json.loads(body)


class NoPulls:
    """Nothing is being pulled."""

    async def look(self):
        return ()


class Pods:
    """The pods that the agent has."""

    def __init__(self, *pods, leaving=()):
        self._pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
        self._leaving = leaving

    def find(self, namespace, name):
        return self._pods.get((namespace, name))

    def terminating(self):
        return self._leaving


@pytest.fixture
async def explain(tmp_path):
    """What is said of the pod when the agent has these pods and has recorded these decisions."""
    clock = ManualClock()
    journal = Journal(path=tmp_path / "journal.db", clock=clock)
    await journal.open()

    async def ask(*pods, leaving=(), decisions=(), errors=(), name="web-node"):
        view = JournalQueries(
            journal=journal,
            pods=Pods(*pods, leaving=leaving),
            node=SimpleNamespace(
                errors=lambda: errors, network_error=lambda: None, well_at=clock.now(), has_answered=True
            ),
            node_name="node",
            api_node=lambda: None,
            pulls=NoPulls(),
            clock=clock,
        )
        for pod, decision in decisions:
            subject = FindingSubject() if pod is None else subject_of(pod)
            at = clock.now() + timedelta(seconds=5)
            journal.record(Finding(subject=subject, decider="test", decision=decision, next="go", next_at=at))
        reported = await view.explain(namespace="default", name=name)
        return (as_sent(reported) if reported is not None else None), as_sent(await view.pods())

    yield ask
    await journal.close()


async def test_a_pod_of_which_nothing_is_known(explain):
    assert await explain(POD, name="other") == (None, {"nodeName": "node", "pods": []})


async def test_a_pod_without_records_is_explained_by_its_status(explain):
    reported, _ = await explain(POD, errors=("runtime is down",))
    assert reported["pod"] == {"namespace": "default", "name": "web-node", "uid": "u2"}
    assert reported["why"][0]["message"] == (
        "the runtime of this node is not well, and nothing new is begun: runtime is down"
    )
    assert reported["why"][0]["since"] == reported["now"]
    assert reported["timeline"] == []


async def test_a_pod_that_is_gone_is_remembered(explain):
    reported, known = await explain(decisions=[(POD, "PodAdded"), (POD, "PodRemoved"), (POD, "Removed")])
    assert reported["state"]["known"] is False
    assert [why["reason"] for why in reported["why"]] == ["PodRemoved"]
    assert [(pod["namespace"], pod["name"]) for pod in known["pods"]] == [("default", "web-node")]


async def test_a_pod_that_waits_for_the_one_before(explain):
    decisions = [(EARLIER, "PodAdded"), (EARLIER, "Terminate"), (POD, "PodAdded")]
    reported, _ = await explain(POD, leaving=(EARLIER,), decisions=decisions)
    assert reported["pod"]["uid"] == "u2"
    assert reported["why"][0]["message"].startswith("an earlier pod of this name has not stopped yet")
    assert [step["life"] for step in reported["timeline"]] == [0, 0, 1]


async def test_a_pod_on_its_way_out(explain):
    reported, _ = await explain(leaving=(EARLIER,), decisions=[(EARLIER, "PodAdded")])
    assert reported["state"]["terminating"] is True
    [step] = reported["timeline"]
    assert step["nextAt"] > reported["now"]
    assert reported["waitingFor"]["on"] == "go"


async def test_a_restart_of_the_agent_is_part_of_the_story(explain):
    decisions = [(None, "AgentStarted"), (POD, "PodAdded"), (POD, "Started"), (None, "AgentStarted"), (POD, "Adopted")]
    reported, _ = await explain(POD, decisions=decisions)
    assert [step["decision"] for step in reported["timeline"]] == ["PodAdded", "Started", "AgentRestarted", "Adopted"]


async def test_the_node(tmp_path):
    clock = ManualClock()
    journal = Journal(path=tmp_path / "journal.db", clock=clock)
    await journal.open()
    for decision, pod in (("AgentStarted", None), ("AgentStarted", None), ("PodAdded", POD), ("NetworkNotReady", None)):
        subject = FindingSubject() if pod is None else subject_of(pod)
        journal.record(Finding(subject=subject, decider="test", decision=decision))
    condition = NodeCondition(type="PIDPressure", status="False", reason="KubeletHasSufficientPID")
    view = JournalQueries(
        journal=journal,
        pods=Pods(),
        node=SimpleNamespace(errors=tuple, network_error=lambda: "no plugin", well_at=clock.now(), has_answered=True),
        node_name="n1",
        api_node=lambda: Node(metadata=ObjectMeta(name="n1"), status=NodeStatus(conditions=(condition,))),
        pulls=NoPulls(),
        clock=clock,
    )
    reported = as_sent(await view.explain_node())
    await journal.close()
    assert (reported["node"], reported["ready"]) == ({"name": "n1"}, False)
    assert [(each["type"], each["status"]) for each in reported["conditions"]] == [
        ("Ready", "False"),
        ("PIDPressure", "False"),
    ]
    assert [(why["reason"], why["since"]) for why in reported["why"]] == [("NetworkNotReady", reported["now"])]
    assert [(step["decision"], step["life"]) for step in reported["timeline"]] == [
        ("AgentStarted", 0),
        ("AgentStarted", 1),
        ("NetworkNotReady", 1),
    ]


async def test_answers_are_written_byte_for_byte_as_version_1_has_them(tmp_path):
    """The file holds what agents sent before there was a schema: order, spaces, escapes, forms of times."""
    clock = ManualClock()
    journal = Journal(path=tmp_path / "journal.db", clock=clock)
    await journal.open()

    def record(subject, decision, parent=None, **more):
        return journal.record(Finding(subject=subject, decider="test", decision=decision, **more), parent=parent)

    record(FindingSubject(), "AgentStarted")
    added = record(subject_of(POD), "PodAdded", message="neu — ünï \x7f \u2028")
    clock.advance(timedelta(milliseconds=1500))
    record(
        FindingSubject("default", "web-node", "u2", "main"),
        "BackOff",
        added,
        measurements={"a": 1, "b": 2.0, "c": True, "d": "x", "e": 1e22},
        since=clock.now(),
        next="start it again",
        next_at=clock.now() + timedelta(seconds=10),
    )
    clock.advance(timedelta(seconds=1))
    record(FindingSubject(), "NetworkNotReady")
    condition = NodeCondition(
        type="PIDPressure",
        status="False",
        reason="KubeletHasSufficientPID",
        last_transition_time=Time.of(clock.now()),
    )
    view = JournalQueries(
        journal=journal,
        pods=Pods(POD),
        node=SimpleNamespace(
            errors=lambda: ("runtime is down",),
            network_error=lambda: "no plugin",
            well_at=clock.now(),
            has_answered=True,
        ),
        node_name="n1",
        api_node=lambda: Node(metadata=ObjectMeta(name="n1"), status=NodeStatus(conditions=(condition,))),
        pulls=NoPulls(),
        clock=clock,
    )
    answers = {
        b"explain": encode(await view.explain(namespace="default", name="web-node")),
        b"node": encode(await view.explain_node()),
        b"pods": encode(await view.pods()),
        b"journal": b"\n".join([encode(each) async for each in view.records(namespace="", name="", since=None)]),
    }
    await journal.close()
    written = b"\n=\n".join(b"\n".join(pair) for pair in answers.items()) + b"\n"
    assert written == (Path(__file__).parent / "klet_v1_answers.txt").read_bytes()
    for cls, name in ((Explanation, b"explain"), (NodeExplanation, b"node"), (RecordedPods, b"pods")):
        assert encode(decode_strictly(cls, answers[name])) == answers[name]
