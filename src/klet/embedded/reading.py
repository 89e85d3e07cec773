"""Lists and watches: which objects a reader wants, from which version on."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct

from klet.aio.broadcast import Lagged
from klet.aio.clock import Clock
from klet.api.field_selectors import FieldSelector, check_fields, parse_field_selector, selectable_fields
from klet.api.kinds import Kind
from klet.api.meta import WatchEventType
from klet.api.selectors import Selector, SelectorError, parse_label_selector
from klet.embedded import refusals
from klet.embedded.refusals import resource_of
from klet.embedded.store import Json, Store, StoreChange, TooOld

BOOKMARK_EVERY: Final = timedelta(seconds=60)
LONGEST_WATCH: Final = timedelta(minutes=30)
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


class Filter(Struct, frozen=True):
    """What of a kind a reader wants to see."""

    kind: Kind
    namespace: str
    name: str
    labels: Selector
    fields: FieldSelector

    def matches(self, obj: Mapping[str, Any]) -> bool:
        metadata = obj["metadata"]
        return (
            (not self.namespace or metadata.get("namespace") == self.namespace)
            and (not self.name or metadata["name"] == self.name)
            and self.labels.matches(metadata.get("labels", {}))
            and self.fields.matches(selectable_fields(self.kind, obj))
        )


class WatchOptions(Struct, frozen=True):
    """From where a watch begins and how it ends."""

    since: int | None
    """None begins with everything there is."""
    marks_list_end: bool
    bookmarks: bool
    timeout: timedelta


def read_filter(kind: Kind, namespace: str, name: str, query: Mapping[str, str]) -> Filter:
    """Return the selectors of a request; raises RequestRefused."""
    try:
        labels = parse_label_selector(query.get("labelSelector", ""))
        fields = check_fields(parse_field_selector(query.get("fieldSelector", "")), kind)
    except SelectorError as error:
        raise refusals.bad_request(str(error)) from error
    return Filter(kind, namespace, name, labels, fields)


def read_watch_options(query: Mapping[str, str]) -> WatchOptions:
    """Return how a watch is asked for; raises RequestRefused."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    initial = query.get("sendInitialEvents")
    if initial is None and match:
        raise refusals.bad_options(
            "resourceVersionMatch: Forbidden: "
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
    if initial is not None and match != "NotOlderThan":
        raise refusals.bad_options(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    if version and not _NUMBER.fullmatch(version):
        raise refusals.bad_options(
            f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
        )
    seconds = query.get("timeoutSeconds", "")
    wanted = timedelta(seconds=int(seconds)) if _SECONDS.fullmatch(seconds) else LONGEST_WATCH
    timeout = wanted or LONGEST_WATCH
    streams = initial == "true"
    since = None if streams or (initial is None and int(version or 0) == 0) else int(version or 0)
    return WatchOptions(
        since, marks_list_end=streams, bookmarks=query.get("allowWatchBookmarks") == "true", timeout=timeout
    )


class Reader:
    """Answers lists and watches from the store."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def all(self, wanted: Filter) -> Json:
        """Return all objects that match. They come in one page, whatever the limit: a node has few."""
        found = [obj for obj in self._store.all(resource_of(wanted.kind), wanted.namespace) if wanted.matches(obj)]
        items = [{name: value for name, value in obj.items() if name not in {"kind", "apiVersion"}} for obj in found]
        return {
            "kind": f"{wanted.kind.name}List",
            "apiVersion": wanted.kind.api_version,
            "metadata": {"resourceVersion": str(self._store.revision)},
            "items": items,
        }

    async def watch(self, wanted: Filter, options: WatchOptions) -> AsyncGenerator[Json, None]:
        """Yield events until the time is up or the reader is too slow; raises RequestRefused for an old version."""
        deadline = self._clock.monotonic() + options.timeout.total_seconds()
        with self._store.changes() as changes:
            # No await between reading what is there and subscribing, so nothing falls in between.
            for event in self._beginning(wanted, options):
                yield event
            while (left := deadline - self._clock.monotonic()) > 0:
                try:
                    async with asyncio.timeout(min(left, BOOKMARK_EVERY.total_seconds())):
                        change = await changes.get()
                except TimeoutError:
                    if options.bookmarks:
                        yield self._bookmark(wanted.kind, annotations={})
                    continue
                if isinstance(change, Lagged):
                    return
                if (news := event_of(change, wanted)) is not None:
                    yield news

    def _beginning(self, wanted: Filter, options: WatchOptions) -> list[Json]:
        if options.since is not None:
            try:
                changes = self._store.since(options.since)
            except TooOld as error:
                raise refusals.expired(str(error)) from error
            return [event for change in changes if (event := event_of(change, wanted)) is not None]
        found = self._store.all(resource_of(wanted.kind), wanted.namespace)
        events = [_event(WatchEventType.ADDED, obj) for obj in found if wanted.matches(obj)]
        if options.marks_list_end:
            events.append(self._bookmark(wanted.kind, annotations={"k8s.io/initial-events-end": "true"}))
        return events

    def _bookmark(self, kind: Kind, *, annotations: Mapping[str, str]) -> Json:
        metadata: Json = {"resourceVersion": str(self._store.revision)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return {
            "type": "BOOKMARK",
            "object": {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata},
        }


def event_of(change: StoreChange, wanted: Filter) -> Json | None:
    """Return how a change looks to one reader: an object may enter or leave what it selects."""
    if change.key.resource != resource_of(wanted.kind):
        return None
    matched = change.before is not None and wanted.matches(change.before)
    matches = change.type is not WatchEventType.DELETED and wanted.matches(change.obj)
    if matches:
        return _event(WatchEventType.MODIFIED if matched else WatchEventType.ADDED, change.obj)
    if not matched or change.before is None:
        return None
    version = change.obj["metadata"]["resourceVersion"]
    last = {**change.before, "metadata": {**change.before["metadata"], "resourceVersion": version}}
    return _event(WatchEventType.DELETED, last)


def _event(change: WatchEventType, obj: Mapping[str, Any]) -> Json:
    return {"type": change, "object": obj}
