"""Which running containers have to move to other CPUs."""

import pytest
from msgspec.structs import replace

from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, PodRuntimeStatus, RuntimeContainerState
from klet.resources.cpu.reconcile import count_by_node, plan_changes
from klet.resources.cpu.state import CpuState
from klet.resources.cpu.topology import build_topology
from klet.testing.builders import make_pod, make_record
from klet.testing.machines import TWO_SOCKETS, list_cpus

UID = PodUID("uid-1")
STATE = CpuState(shared=parse_cpu_list("0,3-7"), exclusive={UID: {"own": parse_cpu_list("1-2")}})


def record(name, *, state=RuntimeContainerState.RUNNING):
    return replace(make_record(make_pod(name), name), id=ContainerId(f"id-{name}"), state=state)


def pod(*records, uid=UID):
    return PodRuntimeStatus(uid=uid, name="pod", namespace="default", containers=records)


@pytest.mark.parametrize(
    ("pods", "applied", "expected"),
    [
        pytest.param([], {}, [], id="nothing runs"),
        pytest.param([pod(record("other"))], {}, ["other 0,3-7"], id="one that this run has not moved yet"),
        pytest.param([pod(record("other"))], {"id-other": "0,3-7"}, [], id="one that is there already"),
        pytest.param([pod(record("other"))], {"id-other": "0-7"}, ["other 0,3-7"], id="the shared CPUs have changed"),
        pytest.param([pod(record("own"))], {}, ["own 1-2 alone"], id="one with CPUs of its own"),
        pytest.param(
            [pod(record("own"), record("other"))], {}, ["other 0,3-7", "own 1-2 alone"], id="others leave them first"
        ),
        pytest.param([pod(record("own"), uid=PodUID("uid-2"))], {}, ["own 0,3-7"], id="the same name in another pod"),
        pytest.param([pod(record("other", state=RuntimeContainerState.EXITED))], {}, [], id="one that has ended"),
        pytest.param(
            [pod(record("other", state=RuntimeContainerState.CREATED))], {}, [], id="one that has not started"
        ),
    ],
)
def test_changes(pods, applied, expected):
    plan = plan_changes(STATE, pods, {ContainerId(each): parse_cpu_list(cpus) for each, cpus in applied.items()})
    shown = [
        f"{change.container} {format_cpu_list(change.cpus)}{' alone' if change.is_exclusive else ''}"
        for change in plan.changes
    ]
    assert shown == expected


def test_which_containers_count():
    states = {"a": RuntimeContainerState.RUNNING, "b": RuntimeContainerState.EXITED, "c": RuntimeContainerState.CREATED}
    plan = plan_changes(STATE, [pod(*(record(name, state=state) for name, state in states.items()))], {})
    assert plan.known == {"id-a", "id-c"}


def test_no_container_is_left_without_cpus():
    nothing_shared = CpuState(exclusive={UID: {"own": parse_cpu_list("0-7")}})
    assert plan_changes(nothing_shared, [pod(record("other"))], {}).changes == ()


def test_cpus_that_are_given_by_numa_node():
    nodes = build_topology(list_cpus(TWO_SOCKETS)).nodes
    assert count_by_node(STATE, nodes) == {0: 1, 1: 1}
    assert count_by_node(CpuState(shared=frozenset(range(12))), nodes) == {}
