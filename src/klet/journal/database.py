"""The journal's SQLite file. Everything here blocks and runs on the journal's own thread."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from klet.api.klet_v1 import RecordedPod
from klet.errors import KletError
from klet.journal.records import CauseQuery, from_microseconds, to_id, to_microseconds, to_number
from klet.model.causes import Cause, CauseId, Finding, FindingSubject, Measurement
from klet.model.reasons import read_reason


class JournalError(KletError):
    """The file cannot be written or read now."""


class JournalDamaged(JournalError):
    """The file is no journal, or not whole; it will not get better."""


class Database:
    """One open journal file."""

    def __init__(self, *, path: Path, connection: sqlite3.Connection, count: int) -> None:
        self._path = path
        self._connection = connection
        self._count = count

    @classmethod
    def open(cls, path: Path) -> "Database":
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Made before SQLite does, for the mode; its side files inherit it.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
        except OSError as error:
            raise JournalError(f"cannot open the journal {path}: {error.strerror}") from error
        try:
            # One thread at a time uses the connection, though not always the one that made it.
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _translated("open", path, error) from error
        try:
            count = _prepare(connection, path)
        except sqlite3.Error as error:
            connection.close()
            raise _translated("open", path, error) from error
        except JournalDamaged:
            connection.close()
            raise
        return cls(path=path, connection=connection, count=count)

    @property
    def count(self) -> int:
        return self._count

    def last_number(self) -> int:
        try:
            row = self._connection.execute("SELECT max(id) FROM causes").fetchone()
        except sqlite3.Error as error:
            raise _translated("read", self._path, error) from error
        return int(row[0] or 0)

    def append(self, causes: Iterable[Cause], *, max_records: int) -> None:
        """Add records and prune the oldest, in one transaction.

        Pruning takes a tenth more than it must, so that it is not done with each write. A pod that has more than its
        share loses of its own first: a probe that fails every second must not push out what is known of the others.
        """
        rows = [_to_row(cause) for cause in causes]
        excess = self._count + len(rows) - max_records
        pruned = 0
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(_INSERT, rows)
                if excess > 0:
                    wanted = excess + max_records // 10
                    pruned = self._connection.execute(_PRUNE_LOUD, (max_records // SHARES, wanted)).rowcount
                    if pruned < wanted:
                        pruned += self._connection.execute(_PRUNE, (wanted - pruned,)).rowcount
        except sqlite3.Error as error:
            raise _translated("write", self._path, error) from error
        self._count += len(rows) - pruned

    def find(self, query: CauseQuery) -> tuple[Cause, ...]:
        conditions = {"namespace": query.namespace, "name": query.name, "uid": query.uid, "container": query.container}
        wanted = {column: value for column, value in conditions.items() if value}
        clauses = [f"{column} = :{column}" for column in wanted]
        values: dict[str, str | int] = {**wanted, "limit": query.limit}
        if query.is_node:
            clauses.append("name = '' AND uid = ''")
        if query.since is not None:
            clauses.append("at >= :since")
            values["since"] = to_microseconds(query.since)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        # Only our own column names enter the text; every value is bound.
        statement = f"SELECT {_COLUMNS} FROM causes {where} ORDER BY id DESC LIMIT :limit"  # noqa: S608
        return tuple(reversed(list(self._read(statement, values))))

    def get(self, cause_id: CauseId) -> Cause | None:
        number = to_number(cause_id)
        if number is None:
            return None
        statement = f"SELECT {_COLUMNS} FROM causes WHERE id = :id"  # noqa: S608 - constant columns
        return next(self._read(statement, {"id": number}), None)

    def pods(self) -> tuple[RecordedPod, ...]:
        # An id is the instant of its record, or a little later, and in the index: no record has to be read.
        statement = "SELECT namespace, name, max(id) FROM causes WHERE name != '' GROUP BY name, namespace"
        try:
            rows = self._connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise _translated("read", self._path, error) from error
        return tuple(
            RecordedPod(namespace=namespace, name=name, last=from_microseconds(at)) for namespace, name, at in rows
        )

    def close(self) -> None:
        self._connection.close()

    def _read(self, statement: str, values: Mapping[str, str | int]) -> Iterator[Cause]:
        try:
            rows = self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _translated("read", self._path, error) from error
        return map(_from_row, rows)


def set_aside(path: Path, *, stamp: str) -> Path:
    """Rename a damaged journal, with its side files, out of the way; returns the new name.

    The journal itself comes last: side files must never be left to a new one.
    """
    target = path.with_name(f"{path.name}.corrupt-{stamp}")
    for side in ("-wal", "-shm", ""):
        source = path.with_name(path.name + side)
        if source.exists():
            source.rename(target.with_name(target.name + side))
    return target


SHARES: Final = 10
"""One pod may have so many parts of a full journal, and no more."""

Row: TypeAlias = tuple[int, int | None, int, str, str, str, str, str, str, str, str, int | None, str, int | None]

_VERSION: Final = 2
_COLUMNS: Final = (
    "id, parent, at, namespace, name, uid, container, decider, decision, message, measurements, since, next, next_at"
)
_INSERT: Final = f"INSERT OR IGNORE INTO causes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_PRUNE_LOUD: Final = """
DELETE FROM causes WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY name, namespace ORDER BY id DESC) AS place
        FROM causes WHERE name != ''
    ) WHERE place > ? ORDER BY id LIMIT ?
)
"""
_PRUNE: Final = "DELETE FROM causes WHERE id IN (SELECT id FROM causes ORDER BY id LIMIT ?)"
_SCHEMA: Final = f"""
CREATE TABLE causes (
    id INTEGER PRIMARY KEY, parent INTEGER, at INTEGER NOT NULL,
    namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, container TEXT NOT NULL,
    decider TEXT NOT NULL, decision TEXT NOT NULL, message TEXT NOT NULL, measurements TEXT NOT NULL,
    since INTEGER, next TEXT NOT NULL, next_at INTEGER
);
CREATE INDEX causes_by_name ON causes (name, namespace, id);
CREATE INDEX causes_by_uid ON causes (uid, id);
PRAGMA user_version = {_VERSION};
"""
_UPGRADES: Final = {1: "ALTER TABLE causes ADD COLUMN next_at INTEGER; PRAGMA user_version = 2;"}
"""From each earlier version to the next."""
_MEASUREMENTS: Final = msgspec.json.Decoder(dict[str, str | int | float | bool])


def _prepare(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if version == 0 and tables == 0:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        version = _VERSION
    while version in _UPGRADES:
        connection.executescript(f"BEGIN IMMEDIATE; {_UPGRADES[version]} COMMIT;")
        version += 1
    if version != _VERSION:
        raise JournalDamaged(f"the journal {path} has the unknown version {version}")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise JournalDamaged(f"the journal {path} is damaged: {verdict}")
    return int(connection.execute("SELECT count(*) FROM causes").fetchone()[0])


def _translated(action: str, path: Path, error: sqlite3.Error) -> JournalError:
    # Errors without a code come from the module itself, before SQLite was asked.
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalDamaged(f"the journal {path} is damaged: {error}")
    return JournalError(f"cannot {action} the journal {path}: {error}")


def _to_row(cause: Cause) -> Row:
    finding, subject = cause.finding, cause.finding.subject
    return (
        int(cause.id, 16),
        None if cause.parent is None else to_number(cause.parent),
        to_microseconds(cause.at),
        subject.namespace,
        subject.name,
        subject.uid,
        subject.container,
        finding.decider,
        str(finding.decision),
        finding.message,
        msgspec.json.encode(dict(finding.measurements)).decode(),
        None if finding.since is None else to_microseconds(finding.since),
        finding.next,
        None if finding.next_at is None else to_microseconds(finding.next_at),
    )


def _from_row(row: Row) -> Cause:
    number, parent, at, namespace, name, uid, container, decider, decision, message, measured = row[:11]
    since, following, next_at = row[11:]
    measurements: Mapping[str, Measurement] = _MEASUREMENTS.decode(measured)
    return Cause(
        id=to_id(number),
        parent=None if parent is None else to_id(parent),
        at=from_microseconds(at),
        finding=Finding(
            subject=FindingSubject(namespace=namespace, name=name, uid=uid, container=container),
            decider=decider,
            decision=read_reason(decision),
            message=message,
            measurements=measurements,
            since=None if since is None else from_microseconds(since),
            next=following,
            next_at=None if next_at is None else from_microseconds(next_at),
        ),
    )
