"""Cause records: which part decided what about which object, on what measurement, since when, and what comes next.

A decision is pure, so it returns a `Finding`; the journal gives it an id and an instant and keeps it as a `Cause`.
Secrets, environment values and whole objects never enter: a measurement is a number, a short word or an instant.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NewType, Protocol, TypeAlias

from msgspec import Struct, field

from klet.api.references import ObjectReference
from klet.model.reasons import AnyReason

CauseId = NewType("CauseId", str)
Measurement: TypeAlias = str | int | float | bool


class FindingSubject(Struct, frozen=True):
    """What a decision is about: a pod, one of its containers, or (all pod fields empty) the node itself."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    container: str = ""


class Finding(Struct, frozen=True, kw_only=True):
    """A decision and its reason, before the journal has dated it."""

    subject: FindingSubject
    decider: str
    """The part that decided, by its package: `sync.workers`, `runtime.actions`."""
    decision: AnyReason
    """What was decided. Only a record that another version left names no `Reason`."""
    message: str = ""
    """Why, in one sentence for the user."""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    since: datetime | None = None
    """When the state that led to this began, if it is known."""
    next: str = ""
    """What happens next, or what is waited for; empty when the decision ends the matter."""
    next_at: datetime | None = None
    """When that happens, if it is known."""
    event_on: ObjectReference | None = None
    """The object that has the Event, if that is not the subject: a claim of the pod, for instance."""


class Cause(Struct, frozen=True, kw_only=True):
    """A finding as the journal keeps it."""

    id: CauseId
    parent: CauseId | None
    at: datetime
    finding: Finding


class CauseRecorder(Protocol):
    """Records findings. Returns the id, so that a consequence can name its parent."""

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId: ...
