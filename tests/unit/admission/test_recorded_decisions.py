"""klet admits and preempts as upstream does: random pods and nodes, with upstream's own answers recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from klet.admission.loads import PodLoads
from klet.admission.predicate_check import PredicateCheck
from klet.admission.predicates import PredicateRules, as_rejection
from klet.admission.preemption import Need, NoVictims, choose_victims
from klet.allocation.book import AllocationBook
from klet.api.codec import convert
from klet.api.node import Node
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.allocation import desired_allocation
from klet.model.pod_resources import compute_resource_request
from klet.model.pods import is_critical
from klet.model.verdicts import Admit, Preempt, Reject

RECORDED = Path(__file__).parents[2] / "data" / "recorded_decisions"


def recorded(name: str) -> pytest.MarkDecorator:
    cases: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.json").read_text())
    return pytest.mark.parametrize("case", [pytest.param(case, id=f"{n}") for n, case in enumerate(cases)])


class RecordedNode:
    """The Node as the agent knows it, and as the API server has it; either may be unknown."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._seen, self._fresh = (convert(Node, case[name]) if name in case else None for name in ("node", "fresh"))
        self.fetched = 0

    def known(self) -> Node | None:
        return self._seen

    async def fetch(self) -> Node:
        self.fetched += 1
        if self._fresh is None:
            raise KletError("no answer")
        return self._fresh

    @property
    def rules(self) -> PredicateRules:
        features = self._seen.status.features if self._seen is not None else None
        return PredicateRules(has_groups_policy=bool(features and features.supplemental_groups_policy))


def pods_of(case):
    return convert(Pod, case["pod"]), [convert(Pod, other) for other in case["others"]]


@recorded("admission")
async def test_who_is_admitted(case):
    pod, others = pods_of(case)
    node, book = RecordedNode(case), AllocationBook()
    loads = PodLoads(allocations=book, status_of=lambda other: other.status)
    check = PredicateCheck(node=node, rules=lambda: node.rules, loads=loads, allocations=book)
    failures = (await check.compare(pod, others)).failures
    assert [as_rejection(each).message for each in failures] == case["failures"]
    assert node.fetched == case.get("fetched", 0)
    match check.decide(pod, failures, others):
        case Admit():
            assert case["admit"]
            assert "victims" not in case
        case Preempt(victims):
            assert case["admit"]
            assert [each.metadata.name for each in victims] == case["victims"]
        case Reject(reason, message):
            assert not case["admit"]
            assert (str(reason), message) == (case["reason"], case["message"])
        case other:
            pytest.fail(f"{other} is no answer of upstream's")


@recorded("preemption")
def test_who_makes_room(case):
    pod, others = pods_of(case)
    needs = [Need(each["resource"], each["amount"]) for each in case["needs"]]
    if not is_critical(pod):
        assert not case.keys() & {"victims", "error"}  # nobody makes room for it
        return
    found = choose_victims(
        pod, others, needs, lambda each, resource: compute_resource_request(desired_allocation(each), resource)
    )
    if isinstance(found, NoVictims):
        assert found.message == case["error"]
    else:
        assert [each.metadata.name for each in found] == case["victims"]
