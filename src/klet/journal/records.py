"""Bounds of journal records, their ids, and queries for them. Pure.

Ids are microseconds since 1970, pushed on where two records share one: they order by time, they go on after a restart
even if the newest records were lost, and they compare as text.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.klet_v1 import RecordedPod
from klet.model.causes import Cause, CauseId, Finding, FindingSubject, Measurement

LONGEST_MESSAGE: Final = 1024
LONGEST_WORD: Final = 256
MOST_MEASUREMENTS: Final = 24
MOST_RECORDS: Final = 1000
"""How many records an answer holds unless more are asked for."""


class CauseQuery(Struct, frozen=True, kw_only=True):
    """Selects records; an empty field selects all. The records of a pod include those of its containers."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    container: str = ""
    is_node: bool = False
    """Only what is about the node itself, and no pod."""
    since: datetime | None = None
    limit: int = MOST_RECORDS
    """The newest so many."""

    def matches(self, cause: Cause) -> bool:
        subject = cause.finding.subject
        return (
            (not self.namespace or subject.namespace == self.namespace)
            and (not self.name or subject.name == self.name)
            and (not self.uid or subject.uid == self.uid)
            and (not self.container or subject.container == self.container)
            and not (self.is_node and (subject.name or subject.uid))
            and (self.since is None or cause.at >= self.since)
        )


def recorded_pods(causes: Iterable[Cause]) -> tuple[RecordedPod, ...]:
    """Return the pods that records are about, by name."""
    newest: dict[tuple[str, str], datetime] = {}
    for cause in causes:
        subject = cause.finding.subject
        if subject.name:
            key = subject.namespace, subject.name
            newest[key] = max(newest.get(key, cause.at), cause.at)
    return tuple(
        RecordedPod(namespace=namespace, name=name, last=newest[namespace, name]) for namespace, name in sorted(newest)
    )


def select_causes(causes: Iterable[Cause], query: CauseQuery) -> tuple[Cause, ...]:
    """Return the newest matching records, oldest first, each once."""
    found = {cause.id: cause for cause in causes if query.matches(cause)}
    newest = sorted(found.values(), key=lambda cause: cause.id)
    return tuple(newest[max(0, len(newest) - query.limit) :])


def next_number(last: int, *, at: datetime) -> int:
    """Return the number of a record made at an instant, after the last one."""
    return max(last + 1, to_microseconds(at))


def to_id(number: int) -> CauseId:
    return CauseId(f"{number:014x}")


def to_number(cause_id: CauseId) -> int | None:
    """Return the number of an id, or None for a text that is no id."""
    try:
        return int(cause_id, 16)
    except ValueError:
        return None


def to_microseconds(instant: datetime) -> int:
    since = instant - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_microseconds(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def bound_finding(finding: Finding) -> Finding:
    """Cut what is too long and remove control characters, so that no whole object enters."""
    if _is_bounded(finding):
        return finding
    measurements = list(finding.measurements.items())[:MOST_MEASUREMENTS]
    subject = finding.subject
    return replace(
        finding,
        subject=FindingSubject(
            namespace=_bound(subject.namespace, LONGEST_WORD),
            name=_bound(subject.name, LONGEST_WORD),
            uid=_bound(subject.uid, LONGEST_WORD),
            container=_bound(subject.container, LONGEST_WORD),
        ),
        decider=_bound(finding.decider, LONGEST_WORD),
        message=_bound(finding.message, LONGEST_MESSAGE),
        measurements={_bound(key, LONGEST_WORD): _bound_measurement(value) for key, value in measurements},
        next=_bound(finding.next, LONGEST_MESSAGE),
    )


def _is_bounded(finding: Finding) -> bool:
    """Return whether a finding needs no cut: nearly every one."""
    subject = finding.subject
    words = (subject.namespace, subject.name, subject.uid, subject.container, finding.decider)
    # Nearly always they are short enough even together.
    together = "".join(words)
    if not together.isprintable() or (len(together) > LONGEST_WORD and max(map(len, words)) > LONGEST_WORD):
        return False
    for text in (finding.message, finding.next):
        if len(text) > LONGEST_MESSAGE or not text.isprintable():
            return False
    return not finding.measurements or (
        len(finding.measurements) <= MOST_MEASUREMENTS
        and all(
            len(key) <= LONGEST_WORD and key.isprintable() and _bound_measurement(value) is value
            for key, value in finding.measurements.items()
        )
    )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _bound_measurement(value: Measurement) -> Measurement:
    if isinstance(value, str):
        return _bound(value, LONGEST_WORD)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        return float(value) if value.bit_length() < _FLOAT_BITS else "out of range"
    return value


# What SQLite and every JSON reader can hold as an integer.
_LARGEST: Final = 2**63 - 1
_FLOAT_BITS: Final = 1000


def _bound(text: str, longest: int) -> str:
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _visible(character) for character in text)


def _visible(character: str) -> str:
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
