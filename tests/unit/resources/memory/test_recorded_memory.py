"""klet gives memory as upstream does: random machines and pods, with upstream's own answers recorded."""

import json
import re
from pathlib import Path

import pytest

from klet.api.codec import convert, to_builtins
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.checkpoint.upstream import MemoryBlock, MemoryTable, NumaNodeState
from klet.config.errors import ConfigError
from klet.config.sections import MemoryReservation
from klet.host.machine.info import NumaNode
from klet.model.allocation import desired_allocation
from klet.resources.memory.allocation import allocate_memory, find_left_memory
from klet.resources.memory.hints import compute_hints, regenerate_hints
from klet.resources.memory.requests import container_requests, has_own_memory, pod_requests
from klet.resources.memory.reservations import compute_reserved_memory
from klet.resources.memory.tables import MemoryState, build_tables, remove_container
from klet.resources.memory.validation import find_state_problem
from klet.resources.topology.hints import AllocationFailure, Hint, mask_of, nodes_of

RECORDED = Path(__file__).parents[3] / "data" / "recorded_decisions" / "memory.json"


def machine_of(case):
    nodes = [
        NumaNode(
            number=each["id"],
            memory=each["memory"],
            hugepages={pages["size"]: pages["count"] for pages in each.get("pages", ())},
        )
        for each in case["nodes"]
    ]
    return build_tables(nodes, {int(node): each for node, each in case["reserved"].items()})


def pod_of(each):
    def container(given):
        requests = {name: str(amount) for name, amount in given["requests"].items()}
        limits = {} if each.get("burstable") else requests
        policy = {"restartPolicy": "Always"} if given.get("sidecar") else {}
        return {"name": given["name"], "resources": {"requests": requests, "limits": limits}, **policy}

    whole = {"cpu": "4", "memory": "1Ti"}
    spec = {
        "initContainers": [container(given) for given in each.get("init", ())],
        "containers": [container(given) for given in each["regular"]],
        **({"resources": {"requests": whole, "limits": whole}} if each.get("podLevel") else {}),
    }
    return convert(Pod, {"metadata": {"name": each["uid"], "uid": each["uid"]}, "spec": spec})


def shown_hints(hints):
    return {
        name: [{"nodes": list(nodes_of(hint.mask)), "preferred": hint.preferred} for hint in each]
        for name, each in hints.items()
    }


def shown_state(state):
    return {
        "machine": {str(node): to_builtins(each) for node, each in state.nodes.items()},
        "entries": {
            uid: {name: [to_builtins(block) for block in blocks] for name, blocks in sorted(each.items())}
            for uid, each in state.entries.items()
        },
    }


def state_of(case):
    def table(each):
        return MemoryTable(
            system_reserved=each["systemReserved"], **{k: v for k, v in each.items() if k != "systemReserved"}
        )

    nodes = {
        int(number): NumaNodeState(
            number_of_assignments=each["numberOfAssignments"],
            memory_map={name: table(found) for name, found in (each["memoryMap"] or {}).items()},
            cells=tuple(each["cells"] or ()),
        )
        for number, each in case["machine"].items()
    }
    entries = {
        uid: {
            name: tuple(
                MemoryBlock(numa_affinity=tuple(block["numaAffinity"] or ()), type=block["type"], size=block["size"])
                for block in blocks
            )
            for name, blocks in containers.items()
        }
        for uid, containers in case["entries"].items()
    }
    return MemoryState(nodes=nodes, entries=entries)


class Bench:
    """A memory manager without its file, driven as upstream's was."""

    def __init__(self, case):
        self.state = MemoryState(nodes=machine_of(case))
        self.pods = [pod_of(each) for each in case["pods"]]

    def replay(self, step):
        """What a step of the recording says, as klet would say it."""
        pod = self.pods[step["pod"]]
        uid = pod.metadata.uid
        every = [*pod.spec.init_containers, *pod.spec.containers]
        container = next((each for each in every if each.name == step.get("container")), None)
        has_own = has_own_memory(pod, pod_level=True)
        match step["op"]:
            case "hints":
                blocks = self.state.blocks_of(uid, container.name)
                wanted = container_requests(container.resources)
                left = find_left_memory(self.state, pod, container.name)
                hints = self.hints(wanted, left) if blocks is None else regenerate_hints(blocks, wanted)
                return {"hints": shown_hints(hints)} if has_own and hints else {}
            case "pod hints":
                found = (self.state.blocks_of(uid, each.name) for each in every)
                blocks = next((each for each in found if each is not None), None)
                wanted = pod_requests(desired_allocation(pod))
                hints = self.hints(wanted, {}) if blocks is None else regenerate_hints(blocks, wanted)
                return {"hints": shown_hints(hints)} if has_own and hints else {}
            case "allocate":
                given = self.allocate(pod, container, step["affinity"]) if has_own else None
                return {"error": given.message} if isinstance(given, AllocationFailure) else {}
            case "remove":
                self.state = remove_container(self.state, uid, container.name)
                return {}

    def hints(self, wanted, left):
        return compute_hints(self.state.nodes, wanted, left)

    def allocate(self, pod, container, affinity):
        mask = None if affinity["nodes"] is None else mask_of(affinity["nodes"])
        hint = Hint(mask, preferred=affinity["preferred"])
        wanted = container_requests(container.resources)
        given = allocate_memory(self.state, pod, container, wanted=wanted, affinity=hint)
        if not isinstance(given, AllocationFailure):
            self.state = given.state
        return given


def decide(case):
    """The answers of klet to a recorded case."""
    if "steps" not in case:
        return {"error": reserve(case)}
    bench = Bench(case)
    steps = [bench.replay(step) for step in case["steps"]]
    answers = {"steps": steps, **shown_state(bench.state)}
    if "restart" in case:
        problem = find_state_problem(state_of(case["restart"]), machine_of(case["restart"]))
        answers["restart"] = without_owner(problem or "")
    return answers


def expected(case):
    if "steps" not in case:
        return {"errors": case["errors"]}
    kept = {"hints", "error"}
    steps = [{name: each for name, each in step.items() if name in kept} for step in case["steps"]]
    answers = {"steps": steps, "machine": case["machine"], "entries": case["entries"]}
    return {**answers, "restart": without_owner(case["restart"]["error"])} if "restart" in case else answers


def without_owner(problem):
    """Upstream looks at pods in no order; which of several is named first says nothing."""
    return re.sub(r"pod: pod\d, container: \w\d", "pod: ?, container: ?", problem)


def reserve(case):
    nodes = [NumaNode(number=each, memory=64 << 30, hugepages={2 << 20: 1024, 1 << 30: 4}) for each in case["nodes"]]
    reservations = [
        MemoryReservation(
            numa_node=each["node"], limits={name: Quantity.parse(text) for name, text in each["limits"].items()}
        )
        for each in case["reserved"]
    ]
    kept = {name: Quantity.parse(text) for name, text in case["allocatable"].items()}
    try:
        compute_reserved_memory(nodes, kept, reservations)
    except ConfigError as error:
        return str(error)
    return ""


def is_same(got, want):
    """klet's errors of the configuration go on with what to do; upstream names any one of several problems."""
    if "errors" in want:
        return any(got["error"].startswith(each) for each in want["errors"]) if want["errors"] else not got["error"]
    return got == want


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{n}") for n, each in enumerate(json.loads(RECORDED.read_text()))]
)
def test_memory_is_given_as_upstream_does(case):
    got, want = decide(case), expected(case)
    assert got == want if "steps" in case else is_same(got, want), got
