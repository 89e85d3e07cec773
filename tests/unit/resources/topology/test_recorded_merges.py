"""klet merges hints as upstream does: random hints, with the answers of upstream's own policies recorded."""

import json
from pathlib import Path

import pytest

from klet.resources.topology.hints import Hint, mask_of, nodes_of
from klet.resources.topology.merge import merge_hints
from klet.resources.topology.rules import TopologyPolicy, TopologyRules

RECORDED = Path(__file__).parents[3] / "data" / "recorded_decisions" / "topology.json"


def hint_of(each):
    return Hint(None if each["nodes"] is None else mask_of(each["nodes"]), preferred=each["preferred"])


def rules_of(case):
    rows = case.get("distances")
    return TopologyRules(
        policy=TopologyPolicy(case["policy"]),
        nodes=tuple(case["nodes"]),
        distances=None if rows is None else {node: dict(enumerate(row)) for node, row in enumerate(rows)},
    )


def decide(case):
    providers = [
        {each["name"]: None if each["hints"] is None else tuple(map(hint_of, each["hints"])) for each in provided}
        for provided in case["providers"]
    ]
    merged = merge_hints(providers, rules_of(case))
    mask = merged.hint.mask
    nodes = None if mask is None else list(nodes_of(mask))
    return {"best": {"nodes": nodes, "preferred": merged.hint.preferred}, "admit": merged.is_admitted}


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{n}") for n, each in enumerate(json.loads(RECORDED.read_text()))]
)
def test_hints_are_merged_as_upstream_does(case):
    assert decide(case) == {"best": case["best"], "admit": case["admit"]}
