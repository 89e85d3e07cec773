from datetime import UTC, datetime, timedelta

import pytest

from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeCondition, NodeSpec, NodeStatus
from klet.api.times import Time
from klet.journal.evidence import Evidence, ReasonKind
from klet.journal.node_diagnosis import NodeState, diagnose_node
from klet.journal.records import to_id
from klet.model.causes import Cause, Finding, FindingSubject
from klet.model.reasons import read_reason

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
NO_NETWORK = "container runtime network not ready: cni plugin not initialized"
ENOUGH = NodeCondition(type="MemoryPressure", status="False", reason="KubeletHasSufficientMemory", message="enough")


def ago(seconds: int) -> datetime:
    return NOW - timedelta(seconds=seconds)


def records(*recorded: tuple[int, str], **fields: object) -> Evidence:
    """Records about the node, each some seconds ago."""
    return Evidence(
        tuple(
            Cause(
                id=to_id(1000 - seconds),
                parent=None,
                at=ago(seconds),
                finding=Finding(subject=FindingSubject(), decider="test", decision=read_reason(decision), **fields),
            )
            for seconds, decision in recorded
        )
    )


def ready_condition(status: str = "True", reason: str = "KubeletReady", message: str = "kubelet is posting") -> object:
    return NodeCondition(
        type="Ready", status=status, reason=reason, message=message, last_transition_time=Time.of(ago(600))
    )


def node_of(*conditions: object, unschedulable: bool = False) -> Node:
    return Node(
        metadata=ObjectMeta(name="n1"),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(conditions=conditions),
    )


def test_a_node_without_an_api_server_that_is_well():
    found = diagnose_node(NodeState(well_at=ago(1)), records((90, "AgentStarted"), (60, "NetworkReady")))
    assert found.is_ready
    assert found.summary == "nothing is wrong: the runtime and its network are well since 11:59:00 UTC"
    assert found.reasons == ()
    (ready,) = found.conditions
    assert (ready.type, ready.status, ready.reason, ready.since) == ("Ready", "True", "KubeletReady", ago(60))


def test_a_network_that_is_not_there():
    state = NodeState(network_error=NO_NETWORK, well_at=ago(1), node=node_of(ready_condition(), ENOUGH))
    found = diagnose_node(state, records((30, "NetworkNotReady")))
    assert not found.is_ready
    assert found.summary == ""
    ours, theirs = found.reasons
    assert (ours.word, ours.since, ours.next) == ("NetworkNotReady", ago(30), "ask the runtime again every second")
    assert ours.message == f"{NO_NETWORK}; pods that want a network of their own wait"
    assert theirs.message == ("the API server has Ready True (KubeletReady: kubelet is posting), and the agent False")
    assert [(each.type, each.status, each.since) for each in found.conditions] == [
        ("Ready", "False", ago(30)),
        ("MemoryPressure", "False", None),
    ]


def test_a_runtime_that_does_not_answer_is_reported_since_it_last_did():
    found = diagnose_node(NodeState(errors=("container runtime is down",), well_at=ago(45)), records())
    (reason,) = found.reasons
    assert (reason.word, reason.since) == ("RuntimeNotReady", ago(45))
    assert found.conditions[0].message == "container runtime is down; nothing new is begun"


def test_a_node_that_starts_has_only_not_looked_yet():
    found = diagnose_node(
        NodeState(network_error="network state unknown", has_answered=False), records((1, "AgentStarted"))
    )
    (reason,) = found.reasons
    assert (reason.kind, reason.word) == (ReasonKind.PROGRESS, "NetworkNotReady")


def test_what_others_have_against_the_node():
    pressure = NodeCondition(type="DiskPressure", status="True", reason="KubeletHasDiskPressure", message="it is full")
    lost = ready_condition("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    found = diagnose_node(NodeState(node=node_of(pressure, lost, unschedulable=True)), records())
    assert [(reason.word, reason.kind) for reason in found.reasons] == [
        ("KubeletHasDiskPressure", ReasonKind.TROUBLE),
        ("NodeStatusUnknown", ReasonKind.TROUBLE),
        ("NodeNotSchedulable", ReasonKind.PROGRESS),
    ]
    assert found.is_ready


@pytest.mark.parametrize(
    ("recorded", "is_away"),
    [
        pytest.param([(60, "ApiServerAway")], True, id="it is away"),
        pytest.param([(60, "ApiServerAway"), (30, "ApiServerBack")], False, id="it is back"),
    ],
)
def test_an_api_server_that_is_away(recorded, is_away):
    found = diagnose_node(NodeState(), records(*recorded, message="it does not answer", next="report it later"))
    assert [reason.word for reason in found.reasons] == (["ApiServerAway"] if is_away else [])


def certificate(seconds: int, decision: str, which: str) -> tuple[Cause, ...]:
    return records((seconds, decision), measurements={"certificate": which}, message=f"{which}: {decision}").causes


def test_a_certificate_that_cannot_be_renewed_is_a_reason_while_the_node_is_ready():
    recorded = Evidence(
        (
            *certificate(900, "CertificateInForce", "client"),
            *certificate(600, "CertificateNotRenewed", "client"),
            *certificate(500, "CertificateNotRenewed", "server"),
            *certificate(300, "CertificateNotRenewed", "client"),
            *certificate(200, "CertificateInForce", "server"),
        )
    )
    found = diagnose_node(NodeState(well_at=ago(1)), recorded)
    assert found.is_ready
    (reason,) = found.reasons
    assert (reason.word, reason.since, reason.message) == (
        "CertificateNotRenewed",
        ago(600),
        "client: CertificateNotRenewed",
    )
