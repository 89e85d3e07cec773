"""Objects, versions and changes."""

import signal
import sqlite3
import subprocess
import sys

import pytest

from klet.api.meta import WatchEventType
from klet.embedded.store import HISTORY, Key, Store, StoreError, TooOld

A, B = Key("pods", "default", "a"), Key("pods", "other", "b")


@pytest.fixture
def store():
    opened = Store.open()
    yield opened
    opened.close()


def obj(**fields):
    return {"metadata": {"name": "x"}, **fields}


def test_every_write_has_a_version_of_its_own(store):
    first = store.put(A, obj(x=1))
    second = store.put(B, obj(x=2))
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1
    assert store.get(A) == first


def test_all_of_a_namespace_or_of_the_cluster_by_name(store):
    store.put(B, obj(x="b"))
    store.put(A, obj(x="a"))
    assert [each["x"] for each in store.all("pods")] == ["a", "b"]
    assert [each["x"] for each in store.all("pods", "other")] == ["b"]


def test_a_removal_is_a_change_with_a_version(store):
    stored = store.put(A, obj())
    gone = store.remove(A)
    assert int(gone["metadata"]["resourceVersion"]) == int(stored["metadata"]["resourceVersion"]) + 1
    assert store.get(A) is None
    assert store.remove(A) is None


def test_changes_since_a_version(store):
    start = store.revision
    store.put(A, obj(x=1))
    store.put(A, obj(x=2))
    store.remove(A)
    changes = store.since(start)
    assert [each.type for each in changes] == [WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED]
    assert changes[1].before["x"] == 1
    assert store.since(store.revision) == []


def test_the_history_is_bounded(store):
    start = store.revision
    for number in range(HISTORY + 5):
        store.put(A, obj(x=number))
    with pytest.raises(TooOld, match=f"too old resource version: {start}"):
        store.since(start)
    assert len(store.since(store.revision - HISTORY)) == HISTORY


def test_objects_and_the_counter_outlive_the_process(tmp_path):
    first = Store.open(tmp_path / "store.db")
    stored = first.put(A, obj(x=1))
    first.close()
    second = Store.open(tmp_path / "store.db")
    assert second.get(A) == stored
    assert second.revision == int(stored["metadata"]["resourceVersion"])
    with pytest.raises(TooOld):
        second.since(1)
    second.close()


CRASH = """
import os, signal, sqlite3, sys
from klet.embedded.store import Key, Store

path, action, fatal = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
store = Store(connection=connection, revision=int(connection.execute("SELECT revision FROM counter").fetchone()[0]))


def die(statement):
    if statement.startswith(fatal):
        os.kill(os.getpid(), signal.SIGKILL)


connection.set_trace_callback(die)
key = Key("pods", "default", "a")
store.put(key, {"metadata": {"name": "a"}, "x": 2}) if action == "put" else store.remove(key)
"""


def versions_in(path):
    """The counter, and the versions of the objects, as the file has them."""
    connection = sqlite3.connect(path)
    [(counter,)] = connection.execute("SELECT revision FROM counter")
    found = [revision for (revision,) in connection.execute("SELECT revision FROM objects")]
    connection.close()
    return counter, found


@pytest.mark.parametrize("action", ["put", "remove"])
@pytest.mark.parametrize("fatal", ["UPDATE counter", "COMMIT"])
def test_a_crash_between_the_writes_of_one_change_undoes_it_whole(tmp_path, action, fatal):
    path = tmp_path / "store.db"
    store = Store.open(path)
    stored = store.put(A, obj(x=1))
    store.close()
    child = subprocess.run([sys.executable, "-c", CRASH, str(path), action, fatal], check=False)
    assert child.returncode == -signal.SIGKILL
    counter, found = versions_in(path)
    assert found == [counter]
    store = Store.open(path)
    assert store.get(A) == stored
    assert int(store.put(A, obj(x=3))["metadata"]["resourceVersion"]) == counter + 1
    store.close()


@pytest.mark.parametrize("action", [lambda store: store.put(A, obj(x=2)), lambda store: store.remove(A)])
def test_a_change_that_cannot_be_stored_leaves_no_trace(tmp_path, action):
    path = tmp_path / "store.db"
    store = Store.open(path)
    stored = store.put(A, obj(x=1))
    before = store.revision
    full = sqlite3.connect(path)
    full.execute("CREATE TRIGGER full BEFORE UPDATE ON counter BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    with pytest.raises(StoreError, match="disk full"):
        action(store)
    assert (store.get(A), store.revision, store.since(before)) == (stored, before, [])
    full.execute("DROP TRIGGER full")
    full.close()
    assert int(store.put(A, obj(x=3))["metadata"]["resourceVersion"]) == before + 1
    store.close()


def test_a_counter_that_was_left_behind_catches_up(tmp_path):
    path = tmp_path / "store.db"
    store = Store.open(path)
    stored = store.put(A, obj(x=1))
    store.close()
    damaged = sqlite3.connect(path)
    damaged.execute("UPDATE counter SET revision = revision - 1")
    damaged.commit()
    damaged.close()
    store = Store.open(path)
    assert int(store.put(B, obj())["metadata"]["resourceVersion"]) > int(stored["metadata"]["resourceVersion"])
    store.close()
