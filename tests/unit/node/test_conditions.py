"""Conditions of the node, and the findings of their changes."""

from datetime import timedelta

import pytest

from klet.api.node import NodeCondition
from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.node.conditions import find_condition, find_missing_capacity, is_ready, set_pressures, set_ready
from klet.testing.builders import NOW

THEN, LATER = Time.of(NOW), Time.of(NOW + timedelta(minutes=1))
NETWORK = NodeCondition(type="NetworkUnavailable", status="False", reason="RouteCreated")


def pressures(before, *present):
    return set_pressures(before, frozenset(present), node="n1", now=LATER)


@pytest.mark.parametrize(
    ("kind", "present", "reason", "message", "event"),
    [
        pytest.param("MemoryPressure", True, "KubeletHasInsufficientMemory",
                     "kubelet has insufficient memory available", "NodeHasInsufficientMemory", id="little memory"),
        pytest.param("MemoryPressure", False, "KubeletHasSufficientMemory",
                     "kubelet has sufficient memory available", "NodeHasSufficientMemory", id="enough memory"),
        pytest.param("DiskPressure", True, "KubeletHasDiskPressure", "kubelet has disk pressure",
                     "NodeHasDiskPressure", id="little disk"),
        pytest.param("DiskPressure", False, "KubeletHasNoDiskPressure", "kubelet has no disk pressure",
                     "NodeHasNoDiskPressure", id="enough disk"),
        pytest.param("PIDPressure", True, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
                     "NodeHasInsufficientPID", id="few process ids"),
        pytest.param("PIDPressure", False, "KubeletHasSufficientPID", "kubelet has sufficient PID available",
                     "NodeHasSufficientPID", id="enough process ids"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("was", ["", "changed"], ids=["a new condition", "a condition that changes"])
def test_a_pressure_that_changes(kind, present, reason, message, event, was):
    old = NodeCondition(type=kind, status="False" if present else "True", last_transition_time=THEN)
    changed = pressures((old,) if was else (), *([kind] if present else []))
    found = find_condition(changed.conditions, kind)
    assert found == NodeCondition(
        type=kind,
        status="True" if present else "False",
        reason=reason,
        message=message,
        last_heartbeat_time=LATER,
        last_transition_time=LATER,
    )
    recorded = [(finding.decision, finding.message) for finding in changed.findings]
    assert (event, f"Node n1 status is now: {event}") in recorded


def test_a_pressure_that_stays_changes_only_its_heartbeat():
    old = NodeCondition(type="MemoryPressure", status="True", reason="Mine", message="mine", last_transition_time=THEN)
    changed = pressures((old,), "MemoryPressure")
    found = find_condition(changed.conditions, "MemoryPressure")
    assert (found.reason, found.message, found.last_transition_time) == ("Mine", "mine", THEN)
    assert found.last_heartbeat_time == LATER
    assert [finding.decision for finding in changed.findings] == ["NodeHasNoDiskPressure", "NodeHasSufficientPID"]


def test_conditions_of_others_keep_their_place():
    changed = pressures((NETWORK,))
    assert [each.type for each in changed.conditions] == [
        "NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure",
    ]  # fmt: skip
    assert changed.conditions[0] == NETWORK


def ready(status: str) -> NodeCondition:
    return NodeCondition(type="Ready", status=status, last_transition_time=THEN, last_heartbeat_time=THEN)


@pytest.mark.parametrize(
    ("errors", "warnings", "status", "reason", "message"),
    [
        pytest.param((), (), "True", "KubeletReady", "kubelet is posting ready status", id="all is well"),
        pytest.param(("runtime",), (), "False", "KubeletNotReady", "runtime", id="one error stands alone"),
        pytest.param(("runtime", "network"), (), "False", "KubeletNotReady", "[runtime, network]",
                     id="several are listed"),
        pytest.param(("same", "same"), (), "False", "KubeletNotReady", "same", id="each is reported once"),
        pytest.param((), ("foo",), "True", "KubeletReady", "kubelet is posting ready status. WARNING: foo",
                     id="a degraded part is named"),
        pytest.param(("runtime",), ("foo",), "False", "KubeletNotReady", "runtime. WARNING: foo",
                     id="a degraded part is named beside an error"),
        pytest.param((), ("foo", "bar"), "True", "KubeletReady",
                     "kubelet is posting ready status. WARNING: [foo, bar]", id="two degraded parts"),
    ],
)  # fmt: skip
def test_the_message_of_ready(errors, warnings, status, reason, message):
    changed = set_ready((), errors, warnings, node="n1", now=LATER)
    assert changed.conditions == (
        NodeCondition(
            type="Ready",
            status=status,
            reason=reason,
            message=message,
            last_heartbeat_time=LATER,
            last_transition_time=LATER,
        ),
    )
    assert changed.findings == ()


@pytest.mark.parametrize(
    ("was", "errors", "decisions", "since"),
    [
        pytest.param("False", (), ["NodeReady"], LATER, id="it becomes ready"),
        pytest.param("Unknown", (), ["NodeReady"], LATER, id="it is reported again"),
        pytest.param("True", ("x",), ["NodeNotReady"], LATER, id="it stops being ready"),
        pytest.param("True", (), [], THEN, id="it stays ready"),
        pytest.param("False", ("other",), [], THEN, id="it stays not ready, for another reason"),
    ],
)
def test_changes_of_ready(was, errors, decisions, since):
    changed = set_ready((ready(was), NETWORK), errors, (), node="n1", now=LATER)
    assert [finding.decision for finding in changed.findings] == decisions
    assert changed.conditions[0].last_transition_time == since
    assert changed.conditions[0].last_heartbeat_time == LATER
    assert is_ready(changed.conditions) is (not errors)


def test_why_it_is_not_ready_goes_to_the_journal():
    (finding,) = set_ready((ready("True"),), ("container runtime is down",), (), node="n1", now=LATER).findings
    assert finding.message == "Node n1 status is now: NodeNotReady"
    assert finding.measurements == {"why": "container runtime is down"}


@pytest.mark.parametrize(
    ("capacity", "counts_storage", "expected"),
    [
        pytest.param((), True, ["missing node capacity for resources: cpu, memory, pods, ephemeral-storage"],
                     id="nothing is known"),
        pytest.param(("cpu", "memory", "pods"), True, ["missing node capacity for resources: ephemeral-storage"],
                     id="only the disk is not known"),
        pytest.param(("cpu", "memory", "pods"), False, [], id="the disk does not count"),
    ],
)  # fmt: skip
def test_find_missing_capacity(capacity, counts_storage, expected):
    found = find_missing_capacity(dict.fromkeys(capacity, Quantity.of(1)), counts_storage=counts_storage)
    assert list(found) == expected
