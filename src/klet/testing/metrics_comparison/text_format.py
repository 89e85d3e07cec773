"""Reads Prometheus' text format as a scraper does: families with their type, and samples with labels and times."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from klet.errors import KletError

LabelSet: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""

_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(,|$)')
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: (-?\d+))?")
_ESCAPED: Final = re.compile(r"\\(.)")
_PARTS: Final = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_OWN_LABELS: Final = {"histogram": "le", "summary": "quantile"}


class MalformedText(KletError):
    """A line is not of the text format."""


class ScrapedSample(Struct, frozen=True):
    """One line."""

    name: str
    labels: LabelSet
    value: float
    milliseconds: int | None
    """Since 1970, if the line has a time of its own."""


class ScrapedFamily(Struct, frozen=True):
    """The samples of one metric."""

    type: str
    help: str
    samples: tuple[ScrapedSample, ...]

    @property
    def own_label(self) -> str:
        """The label that the type itself brings: a bucket or a quantile."""
        return _OWN_LABELS.get(self.type, "")

    def label_names(self) -> frozenset[tuple[str, ...]]:
        """Return the sets of label names that its samples have."""
        return frozenset(tuple(name for name, _ in sample.labels if name != self.own_label) for sample in self.samples)


def parse_text(text: str) -> Mapping[str, ScrapedFamily]:
    """Read all families of an answer. Raises MalformedText."""
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    samples: dict[str, list[ScrapedSample]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            if name in types:
                raise MalformedText(f"the family {name} begins twice")
            types[name] = kind
            samples[name] = []
        elif line.startswith("# HELP "):
            name, _, helps[name] = line.removeprefix("# HELP ").partition(" ")
        elif line and not line.startswith("#"):
            sample = _parse_sample(line)
            samples.setdefault(_family_of(sample.name, types), []).append(sample)
    return {
        name: ScrapedFamily(types.get(name, "untyped"), helps.get(name, ""), tuple(found))
        for name, found in samples.items()
    }


def _family_of(name: str, types: Mapping[str, str]) -> str:
    for kind, endings in _PARTS.items():
        for ending in endings:
            base = name.removesuffix(ending)
            if base != name and types.get(base) == kind:
                return base
    return name


def _parse_sample(line: str) -> ScrapedSample:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        raise MalformedText(f"no sample: {line[:200]!r}")
    name, labels, value, time = found.groups()
    try:
        return ScrapedSample(
            name, tuple(sorted(_parse_labels(labels or ""))), float(value), int(time) if time else None
        )
    except ValueError as error:
        raise MalformedText(f"no number: {line[:200]!r}") from error


def _parse_labels(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise MalformedText(f"no label: {text[at : at + 200]!r}")
        yield found[1], _ESCAPED.sub(lambda escaped: "\n" if escaped[1] == "n" else escaped[1], found[2])
        at = found.end()
