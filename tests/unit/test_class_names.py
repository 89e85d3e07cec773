"""A class name means one thing in the whole tree: a reader who meets it knows which class it is."""

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import klet

SOURCE = Path(klet.__file__).parent
UPSTREAM = frozenset({"Event", "EventSeries", "EndpointPort", "ResourceClaim", "TokenRequest"})
"""Upstream has these twice itself, in two API groups; both are in `api/`."""
ALSO_UPSTREAM: Mapping[str, str] = {
    "Counter": "metrics.py",  # api/resource.py has upstream's, of a device's shared capacity.
}
"""Upstream's name in `api/`, and one more meaning that is as well known, by its module."""


def public_classes() -> Mapping[str, Sequence[str]]:
    """The modules that define each public class, below `src/klet/`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(SOURCE).as_posix())
    return found


def is_allowed(name: str, modules: Sequence[str]) -> bool:
    if name in UPSTREAM:
        return all(module.startswith("api/") for module in modules)
    others = [module for module in modules if module != ALSO_UPSTREAM.get(name)]
    return len(others) < 2


def test_no_class_name_means_two_things():
    twice = {
        name: modules
        for name, modules in public_classes().items()
        if len(modules) > 1 and not is_allowed(name, modules)
    }
    assert twice == {}
