"""The newest view of each pod."""

import pytest

from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.pleg.cache import Reading, RuntimeCache
from klet.testing.builders import make_pod, make_record, make_status

POD = make_pod("a")
UID = PodUID("uid-1")
RUNNING = make_status(POD, make_record(POD, "a"))
EXITED = make_status(POD, make_record(POD, "a", RuntimeContainerState.EXITED))
NOTHING = PodRuntimeStatus(uid=UID)
OTHER = PodRuntimeStatus(uid=PodUID("other"))


def test_an_older_reading_never_replaces_a_newer_one():
    cache = RuntimeCache()
    assert cache.put(Reading(EXITED, 5.0))
    assert not cache.put(Reading(RUNNING, 4.0))
    assert cache.get(UID) == Reading(EXITED, 5.0)


def test_of_two_readings_of_one_instant_the_later_counts():
    cache = RuntimeCache()
    cache.put(Reading(RUNNING, 5.0))
    assert cache.put(Reading(EXITED, 5.0))


def test_subscribers_are_notified_of_changes_only():
    cache = RuntimeCache()
    with cache.changes() as changes:
        cache.put(Reading(RUNNING, 1.0))
        cache.put(Reading(RUNNING, 2.0))
        assert changes.drain() == [UID]
        cache.put(Reading(RUNNING, 3.0, KletError("no answer")))
        cache.put(Reading(RUNNING, 4.0, KletError("still none")))
        assert changes.drain() == [UID]
        cache.put(Reading(RUNNING, 5.0))
        cache.put(Reading(EXITED, 6.0))
        cache.put(Reading(RUNNING, 5.5))
        assert changes.drain() == [UID, UID]
    reading = cache.get(UID)
    assert reading is not None
    assert reading.read_at == 6.0


def test_only_pods_with_something_in_the_runtime_are_listed():
    cache = RuntimeCache()
    cache.put(Reading(RUNNING, 1.0))
    cache.put(Reading(OTHER, 1.0))
    assert cache.pods() == {UID: RUNNING}


def test_forgetting():
    cache = RuntimeCache()
    cache.put(Reading(RUNNING, 1.0))
    cache.forget(UID)
    cache.forget(UID)
    assert cache.get(UID) is None


@pytest.mark.parametrize(
    ("reading", "keep", "stays"),
    [
        pytest.param(Reading(NOTHING, 1.0), (), False, id="nothing is left of it"),
        pytest.param(Reading(NOTHING, 1.0), (UID,), True, id="the runtime lists it again"),
        pytest.param(Reading(NOTHING, 3.0), (), True, id="it was read after the list was begun"),
        pytest.param(Reading(NOTHING, 1.0, KletError("no answer")), (), True, id="the runtime did not answer"),
        pytest.param(Reading(EXITED, 1.0), (), True, id="a dead container is something"),
    ],
)
def test_dead_containers_do_not_accumulate(reading, keep, stays):
    cache = RuntimeCache()
    cache.put(reading)
    cache.forget_empty(read_before=2.0, keep=keep)
    assert (cache.get(UID) is not None) is stays


def test_the_status_of_a_pod_is_what_was_read_last_unless_that_failed():
    cache = RuntimeCache()
    assert cache.status_of(UID) is None
    cache.put(Reading(RUNNING, 1.0))
    assert cache.status_of(UID) == RUNNING
    cache.put(Reading(RUNNING, 2.0, KletError("no answer")))
    assert cache.status_of(UID) is None
