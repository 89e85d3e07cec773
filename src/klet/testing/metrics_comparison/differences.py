"""What two agents report differently, and which of that is accepted, with a reason."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from klet.testing.metrics_comparison.recordings import CADVISOR, PROBES, RESOURCE, SUMMARIES, TEXTS, Recording
from klet.testing.metrics_comparison.shapes import FamilyShape, Shape, series_of, shape_of, values_of

COMPARED_BY_SERIES: Final = (CADVISOR, RESOURCE, PROBES)
"""The other routes count what the agent has done, which is another thing each time."""


class DifferenceKind(StrEnum):
    """What is not the same. Missing and additional are seen from klet."""

    MISSING_FAMILY = "missing family"
    ADDITIONAL_FAMILY = "additional family"
    TYPE = "type"
    LABELS = "labels"
    TIMES = "times of samples"
    MISSING_SERIES = "missing series"
    ADDITIONAL_SERIES = "additional series"
    MISSING_KEY = "missing key"
    ADDITIONAL_KEY = "additional key"
    VALUE = "value"


class ReportedDifference(Struct, frozen=True, order=True):
    """One thing that is not the same."""

    route: str
    kind: DifferenceKind
    subject: str
    """A family, or a path of the summary; of a series, the family and its labels."""
    detail: str = ""


class Acceptance(Struct, frozen=True, forbid_unknown_fields=True):
    """Differences that are meant to be."""

    route: str
    kind: DifferenceKind
    subject: str
    """A pattern of the shell."""
    reason: str

    def covers(self, difference: ReportedDifference) -> bool:
        return (
            self.kind is difference.kind
            and self.route == difference.route
            and fnmatchcase(difference.subject, self.subject)
        )


class Judgement(Struct, frozen=True):
    """All differences, and what became of them."""

    open: tuple[ReportedDifference, ...]
    accepted: tuple[ReportedDifference, ...]
    idle: tuple[Acceptance, ...]
    """What covers nothing (any more)."""


def judge_differences(found: Sequence[ReportedDifference], acceptances: Sequence[Acceptance]) -> Judgement:
    used = {number for number, each in enumerate(acceptances) if any(map(each.covers, found))}
    accepted = tuple(each for each in found if any(one.covers(each) for one in acceptances))
    return Judgement(
        open=tuple(each for each in found if each not in accepted),
        accepted=accepted,
        idle=tuple(each for number, each in enumerate(acceptances) if number not in used),
    )


def compare_shapes(upstream: Shape, klet: Shape) -> Iterator[ReportedDifference]:
    """Yield what differs in families, types, label names and keys."""
    for route in TEXTS:
        yield from _compare_families(route, upstream.texts.get(route, {}), klet.texts.get(route, {}))
    for route in SUMMARIES:
        theirs, ours = set(upstream.summaries.get(route, ())), set(klet.summaries.get(route, ()))
        for path in sorted(theirs - ours):
            yield ReportedDifference(route, DifferenceKind.MISSING_KEY, path)
        for path in sorted(ours - theirs):
            yield ReportedDifference(route, DifferenceKind.ADDITIONAL_KEY, path)


def compare_recordings(upstream: Recording, klet: Recording) -> Iterator[ReportedDifference]:
    """Yield what differs in shape, in series, and in the keys of each pod and container."""
    shape_differences = list(compare_shapes(shape_of(upstream), shape_of(klet)))
    yield from shape_differences
    named = {(each.route, each.subject) for each in shape_differences}
    for route in COMPARED_BY_SERIES:
        yield from (each for each in _compare_series(route, upstream, klet) if (route, _family(each)) not in named)
    for route in SUMMARIES:
        theirs, ours = (values_of(each.second.summary(route)).keys() for each in (upstream, klet))
        for kind, paths in (
            (DifferenceKind.MISSING_KEY, theirs - ours),
            (DifferenceKind.ADDITIONAL_KEY, ours - theirs),
        ):
            yield from (ReportedDifference(route, kind, path) for path in sorted(paths))


def _compare_families(
    route: str, theirs: Mapping[str, FamilyShape], ours: Mapping[str, FamilyShape]
) -> Iterator[ReportedDifference]:
    for name in sorted(theirs.keys() - ours.keys()):
        yield ReportedDifference(route, DifferenceKind.MISSING_FAMILY, name)
    for name in sorted(ours.keys() - theirs.keys()):
        yield ReportedDifference(route, DifferenceKind.ADDITIONAL_FAMILY, name)
    for name in sorted(theirs.keys() & ours.keys()):
        upstream, klet = theirs[name], ours[name]
        if upstream.type != klet.type:
            yield ReportedDifference(route, DifferenceKind.TYPE, name, f"{upstream.type}, here {klet.type}")
        # A family without samples has no labels to compare.
        if upstream.labels and klet.labels and upstream.labels != klet.labels:
            yield ReportedDifference(route, DifferenceKind.LABELS, name, f"{upstream.labels}, here {klet.labels}")
        if upstream.labels and klet.labels and upstream.timed != klet.timed:
            yield ReportedDifference(route, DifferenceKind.TIMES, name, f"{upstream.timed}, here {klet.timed}")


def _compare_series(route: str, upstream: Recording, klet: Recording) -> Iterator[ReportedDifference]:
    theirs, ours = upstream.second.families(route), klet.second.families(route)
    for name in sorted(theirs.keys() & ours.keys()):
        before, after = series_of(theirs[name]), series_of(ours[name])
        for kind, found in (
            (DifferenceKind.MISSING_SERIES, before - after),
            (DifferenceKind.ADDITIONAL_SERIES, after - before),
        ):
            for labels in sorted(found):
                shown = ",".join(f"{key}={value}" for key, value in labels if value)
                yield ReportedDifference(route, kind, f"{name}{{{shown}}}")


def _family(difference: ReportedDifference) -> str:
    return difference.subject.partition("{")[0]
