"""Objects, versions and changes."""

import pytest

from klet.embedded.store import HISTORY, ChangeType, Key, Store, TooOld

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
    assert [each.type for each in changes] == [ChangeType.ADDED, ChangeType.MODIFIED, ChangeType.DELETED]
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
