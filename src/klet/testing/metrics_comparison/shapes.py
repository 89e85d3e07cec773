"""The shape of what an agent reports: families with types and labels, series, and keys of the summary; no values."""

from collections.abc import Mapping

from msgspec import Struct

from klet.testing.metrics_comparison.recordings import SUMMARIES, TEXTS, Recording
from klet.testing.metrics_comparison.text_format import LabelSet, ScrapedFamily


class FamilyShape(Struct, frozen=True, omit_defaults=True):
    """How one metric looks."""

    type: str
    labels: tuple[tuple[str, ...], ...]
    """Each set of label names that occurs, without bucket and quantile."""
    timed: bool = False
    """Whether its samples have times of their own."""


class Shape(Struct, frozen=True):
    """Of all routes of one agent."""

    texts: Mapping[str, Mapping[str, FamilyShape]]
    """By route and family."""
    summaries: Mapping[str, tuple[str, ...]]
    """By route: the paths of all keys, with `[]` for the entries of lists."""


def shape_of(recording: Recording) -> Shape:
    """Return the shape of both rounds together: some series appear with the second one only."""
    texts: dict[str, dict[str, FamilyShape]] = {}
    for route in TEXTS:
        first, second = recording.first.families(route), recording.second.families(route)
        names = sorted(first.keys() | second.keys())
        texts[route] = {name: shape_of_family(first.get(name), second.get(name)) for name in names}
    summaries = {
        route: tuple(sorted({generalize(path) for path in values_of(recording.second.summary(route))}))
        for route in SUMMARIES
    }
    return Shape(texts=texts, summaries=summaries)


def shape_of_family(*seen: ScrapedFamily | None) -> FamilyShape:
    families = [family for family in seen if family is not None]
    return FamilyShape(
        type=families[-1].type,
        labels=tuple(sorted({names for family in families for names in family.label_names()})),
        timed=any(sample.milliseconds is not None for family in families for sample in family.samples),
    )


def series_of(family: ScrapedFamily) -> frozenset[LabelSet]:
    """Return the label sets of a family, without bucket and quantile."""
    return frozenset(tuple(pair for pair in sample.labels if pair[0] != family.own_label) for sample in family.samples)


def values_of(document: object) -> dict[str, object]:
    """Return all values by their paths; the entries of lists go by their names: `pods[default/web].cpu.time`."""
    found: dict[str, object] = {}

    def visit(value: object, path: str) -> None:
        match value:
            case dict():
                for key, inner in value.items():
                    visit(inner, f"{path}.{key}" if path else key)
            case list():
                for entry in value:
                    visit(entry, f"{path}[{entry_name(entry)}]")
            case _:
                found[path] = value

    visit(document, "")
    return found


def entry_name(entry: object) -> str:
    if isinstance(entry, dict) and "podRef" in entry:
        return f"{entry['podRef']['namespace']}/{entry['podRef']['name']}"
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""


def generalize(path: str) -> str:
    """Return a path without the names in brackets."""
    kept, depth = [], 0
    for character in path:
        depth -= character == "]"
        if not depth:
            kept.append(character)
        depth += character == "["
    return "".join(kept)
