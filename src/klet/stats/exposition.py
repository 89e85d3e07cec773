"""Writes samples in Prometheus' text format: few families with many series, and timestamps. Pure.

The labels and the timestamp of a row are written once and shared by all families that have a sample for it. Label
values come from the node's own pods, containers and devices: they are escaped and cut, and a series exists as long as
what it measures. The text is written in pieces, family by family, so that it is never in memory as a whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from klet.model.foreign_text import LONGEST_WORD, shorten

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Number: TypeAlias = int | float
LabelPair: TypeAlias = str
"""One label with its value, escaped: `pod="web-0"`."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LINES_AT_ONCE: Final = 250


class FamilyType(StrEnum):
    """The type of a family of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"


class SampleRow(Struct, Generic[T_co], frozen=True):
    """What has one sample in each of several families: a cgroup, a device of it, an interface of it."""

    labels: str
    """With braces, or empty."""
    at: str
    """The timestamp with a space before it, or empty."""
    values: T_co


class SampleFamily(Struct, Generic[T], frozen=True):
    """One family of metrics, and how its value is read from what a row has."""

    name: str
    type: FamilyType
    about: str
    read: Callable[[T], Number | None]
    """Returns None where there is no sample."""


class FamilySamples(Struct, frozen=True):
    """A family with its rows, to be written."""

    name: str
    write: Callable[[], Iterator[bytes]]
    """Gives nothing if there is no sample: then the family is not named either."""


def label(name: str, value: str, *, longest: int = LONGEST_WORD) -> LabelPair:
    """Write one label. A value that is too long is cut; what is not UTF-8 is replaced."""
    short = shorten(value, longest)
    if not short.isascii():
        # What came undecoded from the kernel, such as bytes in the name of a cgroup.
        short = short.encode("utf-8", "replace").decode()
    return f'{name}="{short.translate(_ESCAPES)}"'


def write_labels(pairs: Iterable[LabelPair]) -> str:
    """Write the labels of a row, sorted by name as Prometheus' own libraries do."""
    return "{" + ",".join(sorted(pairs)) + "}"


def write_timestamp(at: datetime) -> str:
    """Write when a sample was taken, in milliseconds."""
    return f" {(at - _EPOCH) // _MILLISECOND}"


def pair_families(families: Iterable[SampleFamily[T]], rows: Sequence[SampleRow[T]]) -> Iterator[FamilySamples]:
    """Give several families the same rows."""
    return (FamilySamples(family.name, partial(_write_family, family, rows)) for family in families)


def feed_family(family: SampleFamily[T], rows: Iterable[SampleRow[T]]) -> Iterator[FamilySamples]:
    """Give one family its rows, which are made only while it is written: the labels of all would take megabytes."""
    yield FamilySamples(family.name, partial(_write_family, family, rows))


def write_exposition(families: Iterable[FamilySamples]) -> Iterator[bytes]:
    """Yield the text in pieces, family by family, sorted by name."""
    for family in sorted(families, key=lambda each: each.name):
        yield from family.write()


def _write_family(family: SampleFamily[T], rows: Iterable[SampleRow[T]]) -> Iterator[bytes]:
    name, read = family.name, family.read
    lines = (f"{name}{row.labels} {value}{row.at}\n" for row in rows if (value := read(row.values)) is not None)
    intro = f"# HELP {name} {family.about}\n# TYPE {name} {family.type}\n"
    while text := "".join(islice(lines, _LINES_AT_ONCE)):
        yield f"{intro}{text}".encode()
        intro = ""
