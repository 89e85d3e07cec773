"""Objects in SQLite with one counter of resource versions for all of them, and the recent changes for watches.

Writes are synchronous and happen one at a time, each in one transaction with its version: after a crash no version is
given out twice. The history of changes is kept in memory and bounded: an older watch has to list again, as
with upstream's API server.
"""

import sqlite3
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.meta import WatchEventType
from klet.errors import KletError

Json: TypeAlias = dict[str, Any]

HISTORY: Final = 10_000
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (revision INTEGER NOT NULL);
"""


class StoreError(KletError):
    """The store's file cannot be used, or not be written."""


class TooOld(KletError):
    """Changes since that version are no longer known."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")


class Key(NamedTuple):
    """Identifies an object: `resource` is the plural with its group, `leases.coordination.k8s.io`."""

    resource: str
    namespace: str
    name: str


class StoreChange(Struct, frozen=True):
    """One write, with what was there before."""

    revision: int
    key: Key
    type: WatchEventType
    obj: Mapping[str, Any]
    before: Mapping[str, Any] | None


class Store:
    """All objects. Only the registry writes."""

    def __init__(self, *, connection: sqlite3.Connection, revision: int) -> None:
        self._connection = connection
        self._revision = revision
        self._history: deque[StoreChange] = deque(maxlen=HISTORY)
        self._oldest = revision
        """Changes after this version are all in the history."""
        self._changes = Broadcast[StoreChange]()

    @classmethod
    def open(cls, path: Path | None = None) -> "Store":
        """Open the store in a file, or without a path one in memory."""
        try:
            # isolation_level=None: Python opens no transactions of its own, `_write` begins each one.
            connection = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            # What a client has seen must be there after a power failure too, or its version is given out again.
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(_SCHEMA)
            row = connection.execute("SELECT revision FROM counter").fetchone()
            if row is None:
                connection.execute("INSERT INTO counter VALUES (1)")
            # Files from before changes were transactions may have a counter that is behind its objects.
            [(newest,)] = connection.execute("SELECT max(revision) FROM objects")
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the store {path}: {error}") from error
        # The history starts empty: a watch from before this start gets TooOld, and lists.
        return cls(connection=connection, revision=max(1 if row is None else row[0], newest or 0))

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: Key) -> Json | None:
        found = self._connection.execute(
            "SELECT body FROM objects WHERE resource = ? AND namespace = ? AND name = ?", key
        ).fetchone()
        return None if found is None else msgspec.json.decode(found[0])

    def all(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a resource in the order of their names; without a namespace those of all namespaces."""
        where, values = ("AND namespace = ?", (resource, namespace)) if namespace else ("", (resource,))
        rows = self._connection.execute(
            f"SELECT body FROM objects WHERE resource = ? {where} ORDER BY namespace, name",  # noqa: S608  # constants
            values,
        )
        return [msgspec.json.decode(body) for (body,) in rows]

    def put(self, key: Key, obj: Mapping[str, Any]) -> Json:
        """Store an object under the next version and return it as stored."""
        before = self.get(key)
        # Computed, not stored yet: `_write` moves the counter only once the transaction is committed.
        revision = self._revision + 1
        stored = _numbered(obj, revision)
        self._write(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
            (*key, revision, msgspec.json.encode(stored)),
            revision,
        )
        self._publish(key, WatchEventType.ADDED if before is None else WatchEventType.MODIFIED, stored, before)
        return stored

    def remove(self, key: Key) -> Json | None:
        """Remove an object and return its last state under the version of the removal."""
        before = self.get(key)
        if before is None:
            return None
        revision = self._revision + 1
        # Upstream too: the DELETED event carries the version of the deletion, from which a watch can resume.
        gone = _numbered(before, revision)
        self._write("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", key, revision)
        self._publish(key, WatchEventType.DELETED, gone, before)
        return gone

    def since(self, revision: int) -> list[StoreChange]:
        """Return the changes after a version; raises TooOld."""
        if revision < self._oldest:
            raise TooOld(revision, self._oldest)
        return [change for change in self._history if change.revision > revision]

    def forget_history(self) -> None:
        """Drop the history, as a compaction of etcd does: every watch from an older version has to list again."""
        self._history.clear()
        self._oldest = self._revision

    def changes(self) -> Subscription[StoreChange]:
        """Subscribe to the changes from now on."""
        return self._changes.subscribe(limit=HISTORY)

    def close(self) -> None:
        self._connection.close()

    def _write(self, statement: str, values: tuple[str | int | bytes, ...], revision: int) -> None:
        """Write one change and its version, or neither; raises StoreError."""
        try:
            with self._connection:  # commits, or rolls back
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute(statement, values)
                self._connection.execute("UPDATE counter SET revision = ?", (revision,))
        except sqlite3.Error as error:
            raise StoreError(f"cannot write the store: {error}") from error
        self._revision = revision

    def _publish(self, key: Key, type_: WatchEventType, obj: Json, before: Json | None) -> None:
        # After the commit and without an await between: a reader of `since` and `changes` sees each change once.
        change = StoreChange(self._revision, key, type_, obj, before)
        if len(self._history) == HISTORY:  # the append below drops the oldest
            self._oldest = self._history[0].revision
        self._history.append(change)
        self._changes.send(change)


def _numbered(obj: Mapping[str, Any], revision: int) -> Json:
    metadata = {**obj.get("metadata", {}), "resourceVersion": str(revision)}
    return {**obj, "metadata": metadata}
