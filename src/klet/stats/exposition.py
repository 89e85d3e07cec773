"""Writes samples in Prometheus' text format: many series of few families, with timestamps. Pure.

The labels and the timestamp of a row are written once and shared by all families that have a sample for it. Label
values come from the node's own pods, containers and devices: they are escaped and cut, and a series exists as long as
what it measures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from klet.model.foreign_text import LONGEST_WORD, shorten

T = TypeVar("T")

Number: TypeAlias = int | float
Pair: TypeAlias = str
"""One label with its value, escaped: `pod="web-0"`."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class FamilyType(StrEnum):
    """The type of a family of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"


class SampleRow(Struct, Generic[T], frozen=True):
    """What has one sample in each of several families: a cgroup, a device of it, an interface of it."""

    labels: str
    """With braces, or empty."""
    at: str
    """The timestamp with a space before it, or empty."""
    values: T


class SampleFamily(Struct, Generic[T], frozen=True):
    """One family of metrics, and how its value is read from what a row has."""

    name: str
    type: FamilyType
    about: str
    read: Callable[[T], Number | None]
    """Returns None where there is no sample."""


class FamilyText(Struct, frozen=True):
    """A family, written."""

    name: str
    text: str


def pair(name: str, value: str, *, longest: int = LONGEST_WORD) -> Pair:
    """Write one label. A value that is too long is cut; what is not UTF-8 is replaced."""
    return f'{name}="{_as_utf8(shorten(value, longest)).translate(_ESCAPES)}"'


def write_labels(pairs: Iterable[Pair]) -> str:
    """Write the labels of a row, sorted by name as Prometheus' own libraries do."""
    return "{" + ",".join(sorted(pairs)) + "}"


def write_timestamp(at: datetime) -> str:
    """Write when a sample was taken, in milliseconds."""
    return f" {(at - _EPOCH) // _MILLISECOND}"


def write_family(family: SampleFamily[T], rows: Sequence[SampleRow[T]]) -> FamilyText:
    """Write the samples of a family. A family without samples has no text at all."""
    name, read = family.name, family.read
    lines = [
        f"{name}{row.labels} {value}{row.at}\n" for row in rows if (value := read(row.values)) is not None
    ]
    if not lines:
        return FamilyText(name, "")
    return FamilyText(name, f"# HELP {name} {family.about}\n# TYPE {name} {family.type}\n{''.join(lines)}")


def write_families(families: Iterable[SampleFamily[T]], rows: Sequence[SampleRow[T]]) -> Iterator[FamilyText]:
    """Write several families about the same rows."""
    return (write_family(family, rows) for family in families)


def write_exposition(families: Iterable[FamilyText]) -> bytes:
    """Return the text of all families, sorted by name."""
    return "".join(each.text for each in sorted(families, key=lambda each: each.name)).encode()


def _as_utf8(text: str) -> str:
    """Replace what came undecoded from the kernel, such as bytes in the name of a cgroup."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
