"""klet gives containers the CPUs that upstream does: random machines and pods, with upstream's own answers recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.config.errors import ConfigError
from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.model.allocation import desired_allocation
from klet.resources.cpu.distributed import take_distributed
from klet.resources.cpu.packed import CpuOrder, TooFewCpus, take_packed
from klet.resources.cpu.policy import StaticPolicy, build_static_policy, parse_options
from klet.resources.cpu.state import CpuState, CpuStateMismatch, check_state
from klet.resources.cpu.static import WhyShared, allocate, container_hints, find_demand, pod_hints
from klet.resources.cpu.topology import CpuPlace, CpuTopology, topology_of
from klet.resources.topology.hints import AllocationFailure, Hint, Hints, mask_of, nodes_of

RECORDED = Path(__file__).parents[3] / "data" / "recorded_decisions" / "cpu.json"


def recorded(*kinds: str) -> pytest.MarkDecorator:
    every = enumerate(json.loads(RECORDED.read_text()))
    return pytest.mark.parametrize(
        ("case", "answer"),
        [pytest.param(each["case"], each["answer"], id=f"{n}") for n, each in every if each["case"]["kind"] in kinds],
    )


def topology(case: dict[str, Any]) -> CpuTopology:
    rows = case["cpus"]
    return topology_of(
        {
            number: CpuPlace(core=core, cache=cache, node=node, socket=socket)
            for number, core, cache, node, socket in rows
        }
    )


def order(case: dict[str, Any]) -> CpuOrder:
    return CpuOrder.SPREAD if case["spread"] else CpuOrder.PACKED


def taken(found: frozenset[int] | TooFewCpus) -> dict[str, str]:
    if isinstance(found, TooFewCpus):
        return {"cpus": "", "error": found.message}
    return {"cpus": format_cpu_list(found), "error": ""}


@recorded("take")
def test_packed(case, answer):
    available = parse_cpu_list(case["available"])
    found = take_packed(topology(case), available, case["count"], order=order(case), by_cache=case["byCache"])
    assert taken(found) == answer


@recorded("distribute")
def test_distributed(case, answer):
    available = parse_cpu_list(case["available"])
    found = take_distributed(topology(case), available, case["count"], group=case["group"], order=order(case))
    assert taken(found) == answer


def container(each: dict[str, Any]) -> dict[str, Any]:
    requests = {"cpu": each["cpu"]} if each["cpu"] else {}
    policy = {"restartPolicy": "Always"} if each["sidecar"] else {}
    return {"name": each["name"], "resources": {"requests": requests}, **policy}


def pod_of(each: dict[str, Any]) -> Pod:
    spec: dict[str, Any] = {
        "initContainers": [container(one) for one in each["init"]],
        "containers": [container(one) for one in each["regular"]],
    }
    if each["podLevel"]:
        spec["resources"] = {"requests": {"cpu": "1"}}
    metadata = {"name": each["uid"], "namespace": "default", "uid": each["uid"]}
    return convert(Pod, {"metadata": metadata, "spec": spec, "status": {"qosClass": each["qos"]}})


def shown_hints(found: Hints) -> list[Any] | None:
    hints = found.get("cpu")
    return None if hints is None else [[list(nodes_of(each.mask)), each.preferred] for each in hints]


def shown_state(state: CpuState) -> dict[str, Any]:
    exclusive = {
        uid: {name: format_cpu_list(cpus) for name, cpus in each.items()} for uid, each in state.exclusive.items()
    }
    return {"shared": format_cpu_list(state.shared), "entries": exclusive}


class Life:
    """One manager, and what happens to it."""

    def __init__(self, policy: StaticPolicy, state: CpuState) -> None:
        self.policy = policy
        self.state = state

    def step(self, do: str, pod: Pod, name: str, affinity: list[int] | None) -> dict[str, Any]:
        allocation = desired_allocation(pod)
        demand = find_demand(pod, allocation, name)
        answer: dict[str, Any] = {}
        match do:
            case "hints":
                answer["hints"] = shown_hints(container_hints(self.policy, self.state, demand))
            case "podHints":
                answer["hints"] = shown_hints(pod_hints(self.policy, self.state, pod, allocation))
            case "remove":
                self.state = self.state.without_container(pod.metadata.uid, name)
            case "allocate":
                hint = Hint(None if affinity is None else mask_of(affinity), preferred=False)
                outcome = None if isinstance(demand, WhyShared) else allocate(self.policy, self.state, demand, hint)
                failure = outcome if isinstance(outcome, AllocationFailure) else AllocationFailure("")
                answer |= {"error": failure.message, "smt": failure.reason is not None}
                if outcome is not None and not isinstance(outcome, AllocationFailure):
                    self.state = outcome.state
        return {**answer, "state": shown_state(self.state)}


def live(case: dict[str, Any]) -> dict[str, Any]:
    reserved = parse_cpu_list(case["reserved"])
    try:
        policy = build_static_policy(
            topology(case), parse_options(case["options"]), reserved=case["numReserved"], specific=reserved
        )
    except ConfigError as error:
        return {"new": str(error)}
    entries = {
        uid: {name: parse_cpu_list(cpus) for name, cpus in each.items()} for uid, each in case["entries"].items()
    }
    try:
        state = check_state(policy, CpuState(shared=parse_cpu_list(case["shared"]), exclusive=entries))
    except CpuStateMismatch as error:
        return {"start": str(error), "reserved": format_cpu_list(policy.reserved)}
    life = Life(policy, state)
    pods = {uid: pod_of(each) for uid, each in case["pods"].items()}
    steps = [life.step(do, pods[uid], name, affinity) for do, uid, name, affinity in case["steps"]]
    return {"reserved": format_cpu_list(policy.reserved), "steps": steps}


@recorded("policy")
def test_the_static_policy(case, answer):
    found = live(case)
    if "new" in answer:
        # What to do about it comes after upstream's words.
        assert found["new"].startswith(f"new static policy error: {answer['new']}: ")
    else:
        assert found == answer
