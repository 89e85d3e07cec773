"""Keeps Events few: similar ones are counted, floods are combined and then dropped (client-go's EventCorrelator).

State and time come in, a decision comes out; nothing here calls the API.
"""

from collections import OrderedDict
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from klet.api.event import Event
from klet.api.times import Time
from klet.model.foreign_text import shorten

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KEYS: Final = 4096
SIMILAR: Final = 10
"""From this many different messages on, Events are combined."""
SIMILAR_WITHIN: Final = timedelta(seconds=600)
BURST: Final = 25
REFILL: Final = timedelta(seconds=300)
LONGEST_MESSAGE: Final = 12 << 10
"""Bytes of a message: a probe may say 10 KiB, and upstream publishes all of it."""
COMBINED: Final = "(combined from similar events): "


class Post(Struct, frozen=True):
    """Create the Event: it happened for the first time."""

    event: Event


class Count(Struct, frozen=True):
    """Update the Event of this name: it has a new count, message and time."""

    event: Event


class Discard(Struct, frozen=True):
    """Publish nothing: there are too many of its kind."""


Decision: TypeAlias = Post | Count | Discard


class Recent(Generic[K, V]):
    """A map of the keys that were used last (LRU)."""

    def __init__(self, limit: int = KEYS) -> None:
        self._limit = limit
        self._known: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def put(self, key: K, value: V) -> None:
        self._known[key] = value
        self._known.move_to_end(key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)


class _Group(Struct, frozen=True):
    messages: frozenset[str]
    last: datetime


class _Bucket(Struct, frozen=True):
    tokens: float
    counted_at: datetime


class Correlator(Struct):
    """Decides whether an Event is created, counted or discarded, from the Events so far."""

    _groups: Recent[Hashable, _Group] = field(default_factory=Recent)
    _seen: Recent[Hashable, Event] = field(default_factory=Recent)
    _buckets: Recent[Hashable, _Bucket] = field(default_factory=Recent)

    def decide(self, event: Event, *, now: datetime) -> Decision:
        """Return what to do with an Event that has just happened."""
        combined = self._combine(event, now)
        key = _kind_of(event) if combined is not event else (*_kind_of(event), event.message, _place(event))
        known = self._seen.get(key)
        if not self._passes(event, now):
            return Discard()
        if known is None:
            self._seen.put(key, combined)
            return Post(combined)
        counted = replace(known, count=known.count + 1, last_timestamp=Time.of(now), message=combined.message)
        self._seen.put(key, counted)
        return Count(counted)

    def _combine(self, event: Event, now: datetime) -> Event:
        key = _kind_of(event)
        group = self._groups.get(key)
        if group is None or now - group.last > SIMILAR_WITHIN:
            group = _Group(frozenset(), now)
        group = _Group(group.messages | {event.message}, now)
        if len(group.messages) < SIMILAR:
            self._groups.put(key, group)
            return event
        # The set stays as large as it must be to know a flood; a flood of new texts must not make it grow.
        self._groups.put(key, _Group(frozenset(sorted(group.messages)[:SIMILAR]), now))
        message = shorten(COMBINED + event.message, LONGEST_MESSAGE)
        return replace(event, message=message, reporting_component="", reporting_instance="")

    def _passes(self, event: Event, now: datetime) -> bool:
        key = (event.source, _object(event), event.type)
        bucket = self._buckets.get(key) or _Bucket(BURST, now)
        tokens = min(float(BURST), bucket.tokens + (now - bucket.counted_at) / REFILL)
        passes = tokens >= 1
        self._buckets.put(key, _Bucket(tokens - 1 if passes else tokens, now))
        return passes


def _object(event: Event) -> Hashable:
    involved = event.involved_object
    return (involved.kind, involved.namespace, involved.name, involved.uid, involved.api_version)


def _place(event: Event) -> str:
    return event.involved_object.field_path


def _kind_of(event: Event) -> tuple[Hashable, ...]:
    """Return what similar Events have in common."""
    reporter = (event.reporting_component, event.reporting_instance)
    return (event.source, _object(event), event.type, event.reason, reporter)
