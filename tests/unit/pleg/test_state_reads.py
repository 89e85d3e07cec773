"""Playbooks of reads: which of them serves a caller, and what becomes of its outcome."""

import pytest

from klet.cri.events import EventKind
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, FirstStart, PodRuntimeStatus, RuntimeContainerState
from klet.pleg.cache import Reading
from klet.pleg.state import NEVER, CacheUpdate
from klet.testing.builders import make_pod, make_record, make_sandbox, make_status

STARTED, STOPPED = EventKind.STARTED, EventKind.STOPPED
FAILURE = KletError("no answer")

UID, OTHER_UID = PodUID("uid-1"), PodUID("uid-2")
POD = make_pod("c")
RUNNING = make_status(POD, make_record(POD, "c"))
EXITED = make_status(POD, make_record(POD, "c", RuntimeContainerState.EXITED))
NOTHING = PodRuntimeStatus(uid=UID)


# Which reading serves a caller


def being_read(play):
    play.state.begin_read(UID, quietly=False, now=5.0)


def requested(play):
    play.state.request_read(UID, now=5.0)


def with_a_stray(play):
    play.event(STARTED, "unknown", now=5.0)


def settled_stray(play):
    with_a_stray(play)
    play.state.end_search("unknown", None, now=6.0)


def with_starts_of_others(play):
    play.state.begin_change()
    play.event(EventKind.CREATED, "sandbox-of-another", now=5.0)
    play.event(STARTED, "sandbox-of-another", now=5.0)
    play.state.end_change(OTHER_UID, now=6.0)


def with_an_end_while_others_start(play):
    play.state.begin_change()
    play.event(STOPPED, "unknown", now=5.0)


def left_read(play):
    play.state.leave_read(play.state.begin_read(UID, quietly=False, now=5.0))


def nothing(_play):
    pass


@pytest.mark.parametrize(
    ("before", "newer_than", "is_known"),
    [
        pytest.param(nothing, NEVER, True, id="the runtime has shown all it has"),
        pytest.param(nothing, 5.0, False, id="the caller has changed something"),
        pytest.param(requested, NEVER, False, id="it is to be read"),
        pytest.param(being_read, NEVER, False, id="it is being read"),
        pytest.param(left_read, NEVER, True, id="its reader has gone"),
        pytest.param(with_a_stray, NEVER, False, id="an event may be its own"),
        pytest.param(with_starts_of_others, NEVER, True, id="klet starts others, whose events these are"),
        pytest.param(with_an_end_while_others_start, NEVER, False, id="something ends that klet does not start"),
        pytest.param(settled_stray, NEVER, True, id="the event was not of a pod"),
    ],
)
def test_a_pod_that_the_runtime_never_showed_is_known_to_be_empty(relisted, before, newer_than, is_known):
    play = relisted()
    before(play)
    expected = Reading(NOTHING, NEVER) if is_known else None
    assert play.state.usable_reading(UID, newer_than=newer_than) == expected


def test_before_the_first_relist_nothing_is_known_of_a_pod(play):
    assert play.state.usable_reading(UID, newer_than=NEVER) is None


def test_a_pod_with_a_record_and_no_reading_has_to_be_read(relisted):
    play = relisted(RUNNING)
    play.cache.forget(UID)
    assert play.state.usable_reading(UID, newer_than=NEVER) is None


@pytest.mark.parametrize(
    ("newer_than", "serves"),
    [
        pytest.param(NEVER, True, id="any will do"),
        pytest.param(4.0, True, id="it began later"),
        pytest.param(5.0, False, id="it began at that very instant"),
        pytest.param(6.0, False, id="it began before"),
    ],
)
@pytest.mark.parametrize("outcome", [RUNNING, FAILURE], ids=["read", "failed"])
def test_the_cached_reading_serves_callers_from_before_it_began(relisted, outcome, newer_than, serves):
    play = relisted()
    reading = play.read(outcome, now=5.0)
    assert play.state.usable_reading(UID, newer_than=newer_than) == (reading if serves else None)


@pytest.mark.parametrize(
    ("newer_than", "joins"),
    [
        pytest.param(4.0, True, id="it began later"),
        pytest.param(5.0, False, id="it began at that very instant"),
        pytest.param(6.0, False, id="it began before"),
        pytest.param(NEVER, False, id="who has never seen the pod reads for itself"),
    ],
)
def test_a_read_under_way_serves_callers_from_before_it_began(relisted, newer_than, joins):
    play = relisted()
    read = play.state.begin_read(UID, quietly=False, now=5.0)
    assert play.state.join_read(UID, newer_than=newer_than, quietly=False) is (read if joins else None)
    assert play.state.join_read(OTHER_UID, newer_than=newer_than, quietly=False) is None


@pytest.mark.parametrize(
    ("begun", "joined", "expected"),
    [
        pytest.param(False, None, False, id="read for the queue"),
        pytest.param(True, None, True, id="read for the worker"),
        pytest.param(False, True, True, id="the worker joins the queue's read"),
        pytest.param(True, False, True, id="the queue joins the worker's read"),
        pytest.param(False, False, False, id="the queue joins its own"),
    ],
)
def test_a_reading_that_the_worker_waits_for_does_not_wake_it(relisted, begun, joined, expected):
    play = relisted()
    read = play.state.begin_read(UID, quietly=begun, now=5.0)
    if joined is not None:
        play.state.join_read(UID, newer_than=4.0, quietly=joined)
    assert play.state.end_read(read, RUNNING) == CacheUpdate(Reading(RUNNING, 5.0), quietly=expected)


def test_a_read_that_is_over_is_not_joined(relisted):
    play = relisted()
    play.read(RUNNING, now=5.0)
    assert play.state.join_read(UID, newer_than=4.0, quietly=False) is None


def test_the_end_of_an_older_read_leaves_the_newer_one(relisted):
    play = relisted()
    older = play.state.begin_read(UID, quietly=False, now=5.0)
    newer = play.state.begin_read(UID, quietly=False, now=6.0)
    assert play.finish(older, RUNNING).reading.read_at == 5.0
    assert play.state.join_read(UID, newer_than=4.0, quietly=False) is newer
    play.finish(newer, EXITED)
    assert play.state.join_read(UID, newer_than=4.0, quietly=False) is None


def test_an_older_read_that_ends_last_does_not_replace_the_newer_one(relisted):
    play = relisted()
    older = play.state.begin_read(UID, quietly=False, now=5.0)
    play.read(EXITED, now=6.0)
    play.finish(older, RUNNING)
    assert play.cache.get(UID) == Reading(EXITED, 6.0)


def test_a_requested_read_may_have_begun_since_the_request_and_further_ones_begin_now(relisted):
    play = relisted(RUNNING)
    play.state.request_read(UID, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=12.0)
    assert play.state.next_read(confirmation, now=12.0) == 10.0
    assert play.state.next_read(confirmation, now=13.0) == 13.0


def test_a_read_that_nothing_requested_begins_now(relisted):
    play = relisted(RUNNING)
    confirmation = play.state.begin_confirmation(UID, now=12.0)
    assert play.state.next_read(confirmation, now=12.0) == 12.0


def test_of_two_requests_the_later_counts(relisted):
    play = relisted(RUNNING)
    play.state.request_read(UID, now=10.0)
    play.event(STOPPED, now=11.0)
    assert play.state.next_read(play.state.begin_confirmation(UID, now=12.0), now=12.0) == 11.0


# Addresses

DEAD = make_status(POD, sandboxes=[make_sandbox(ready=False)])
BARE = make_status(POD, sandboxes=[make_sandbox(attempt=1, ip="")])


@pytest.mark.parametrize(
    ("cached", "shown", "ips"),
    [
        pytest.param(RUNNING, DEAD, ("10.1.0.5",), id="a dead sandbox keeps those of before"),
        pytest.param(RUNNING, DEAD.with_ips(("10.1.0.6",)), ("10.1.0.6",), id="unless it shows its own"),
        pytest.param(RUNNING, BARE, (), id="a live one without has none"),
        pytest.param(RUNNING, NOTHING, (), id="nor has a pod that is gone"),
        pytest.param(None, DEAD, (), id="nor one that was never read"),
    ],
)
def test_addresses(play, cached, shown, ips):
    if cached is not None:
        play.read(cached)
    assert play.read(shown, now=5.0).status.ips == ips


# First starts

FIRST = FirstStart(RUNNING.sandboxes[0], (ContainerId("c"),))


def seen_running(play):
    play.read(RUNNING)


def seen_empty(play):
    play.read(NOTHING)


@pytest.mark.parametrize(
    ("before", "is_noted"),
    [
        pytest.param(nothing, True, id="a pod that nothing has shown"),
        pytest.param(seen_empty, True, id="a pod of which the runtime had nothing"),
        pytest.param(seen_running, False, id="a pod that was there before"),
        pytest.param(requested, False, id="an event came meanwhile"),
        pytest.param(being_read, False, id="it is being read"),
        pytest.param(left_read, True, id="its read is over"),
    ],
)
def test_what_klet_has_just_made_need_not_be_searched_for(relisted, before, is_noted):
    play = relisted()
    before(play)
    play.state.note_first_start(UID, FIRST)
    assert play.state.begin_read(UID, quietly=False, now=9.0).first == (FIRST if is_noted else None)
    assert play.state.begin_read(UID, quietly=False, now=9.0).first is None
