"""Hints as the journal names them."""

import pytest

from klet.resources.topology.hints import Hint, mask_of
from klet.resources.topology.words import describe_hint, describe_hints


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        pytest.param(Hint(None, preferred=True), "any NUMA nodes", id="any"),
        pytest.param(Hint(mask_of([3]), preferred=True), "NUMA node 3", id="one"),
        pytest.param(Hint(mask_of([0, 1, 4]), preferred=False), "NUMA nodes 0-1,4", id="several"),
    ],
)
def test_one_hint(hint, expected):
    assert describe_hint(hint) == expected


def test_all_hints():
    many = tuple(Hint(mask_of([node]), preferred=True) for node in range(10))
    any_node = (Hint(None, preferred=True),)
    assert describe_hints([{"memory": (), "gpu": None}, {}, {"cpu": many, "nic": any_node}]) == (
        "cpu {0} {1} {2} {3} {4} {5} {6} {7} and 2 more; memory nowhere; nic {any}"
    )
