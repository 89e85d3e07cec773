"""Playbooks of reads until they show what events said."""

from datetime import timedelta

import pytest

from klet.cri.events import EventKind
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.pleg.cache import Reading
from klet.pleg.state import CacheUpdate, ReadAgain, ReadPod
from klet.testing.builders import NOW, make_pod, make_record, make_sandbox, make_status

RELIST = timedelta(seconds=1)
CREATED, STARTED, STOPPED = EventKind.CREATED, EventKind.STARTED, EventKind.STOPPED
DELETED, OOM = EventKind.DELETED, EventKind.OOM
FAILURE = KletError("no answer")

UID = PodUID("uid-1")
POD = make_pod("c", "d")
BARE = make_status(POD)
MADE = make_status(POD, make_record(POD, "c", RuntimeContainerState.CREATED))
RUNNING = make_status(POD, make_record(POD, "c"))
BOTH_RUNNING = make_status(POD, make_record(POD, "c"), make_record(POD, "d"))
EXITED = make_status(POD, make_record(POD, "c", RuntimeContainerState.EXITED))
DEAD = make_status(POD, sandboxes=[make_sandbox(ready=False)])
NOTHING = PodRuntimeStatus(uid=UID)


# Reads until they agree with the events


@pytest.mark.parametrize(
    ("kind", "member", "shown"),
    [
        pytest.param(STARTED, "c-0", RUNNING, id="started and running"),
        pytest.param(STOPPED, "c-0", EXITED, id="stopped and exited"),
        pytest.param(DELETED, "c-0", BARE, id="deleted and gone"),
        pytest.param(STOPPED, "sandbox-0", DEAD, id="a stopped sandbox"),
        pytest.param(DELETED, "sandbox-0", NOTHING, id="a removed sandbox"),
        pytest.param(CREATED, "c-0", BARE, id="a creation is not waited for"),
        pytest.param(OOM, "c-0", RUNNING, id="a lack of memory is not waited for"),
    ],
)
def test_one_read_is_enough_if_it_shows_what_the_event_said(relisted, kind, member, shown):
    play = relisted(RUNNING)
    play.event(kind, member)
    assert play.confirm(shown) is None
    assert play.cache.get(UID).status.members() == shown.members()


@pytest.mark.parametrize(
    ("kind", "member", "shown"),
    [
        pytest.param(STARTED, "d-0", RUNNING, id="started, and not shown yet"),
        pytest.param(STARTED, "c-0", MADE, id="started, and shown as created"),
        pytest.param(STOPPED, "c-0", RUNNING, id="stopped, and shown as running"),
        pytest.param(DELETED, "c-0", EXITED, id="deleted, and still shown"),
        pytest.param(STOPPED, "sandbox-0", RUNNING, id="a stopped sandbox, shown as ready"),
        pytest.param(DELETED, "sandbox-0", DEAD, id="a removed sandbox, still shown"),
    ],
)
def test_a_read_that_contradicts_the_event_is_repeated(relisted, kind, member, shown):
    play = relisted(RUNNING)
    play.event(kind, member, sandbox="sandbox-0")
    assert play.confirm(shown) == ReadAgain(timedelta(milliseconds=5))


@pytest.mark.parametrize(
    ("passed", "pause"),
    [
        pytest.param(0.0, 0.005, id="at once"),
        pytest.param(0.01, 0.005, id="soon"),
        pytest.param(0.04, 0.02, id="half of the time that has passed"),
        pytest.param(0.9, 0.1, id="what is left until it is given up"),
        pytest.param(0.998, 0.005, id="never less than five milliseconds"),
    ],
)
def test_the_pause_between_reads_grows_with_the_time_that_has_passed(relisted, passed, pause):
    play = relisted(RUNNING)
    play.event(STOPPED)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    verdict = play.state.judge(confirmation, play.read(RUNNING, now=10.0), now=10.0 + passed)
    assert verdict.after.total_seconds() == pytest.approx(pause, abs=1e-6)


def test_the_pause_is_short_again_after_another_event(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.look(confirmation, RUNNING, now=10.0)
    play.event(STOPPED, now=10.5)
    assert play.look(confirmation, RUNNING, now=10.5) == ReadAgain(timedelta(milliseconds=5))


def test_without_an_event_one_read_is_enough(relisted):
    play = relisted(RUNNING)
    play.state.request_read(UID, now=10.0)
    assert play.confirm(EXITED) is None


def test_a_lack_of_memory_that_is_announced_after_the_end_leaves_the_end_to_be_waited_for(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    play.event(OOM, now=10.0)
    assert isinstance(play.confirm(RUNNING), ReadAgain)


def test_an_event_during_a_read_is_compared_with_the_next_one(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    read = play.state.begin_read(UID, quietly=False, now=10.0)
    assert play.event(DELETED, now=10.5) == ReadPod(UID)
    update = play.finish(read, RUNNING)
    assert isinstance(play.state.judge(confirmation, update.reading, now=10.6), ReadAgain)
    # Stopped alone would agree with this one; deleted does not, and has a second of its own.
    assert isinstance(play.look(confirmation, EXITED, now=11.2), ReadAgain)
    assert play.look(confirmation, BARE, now=11.3) is None


def test_an_event_during_the_last_read_leads_to_another(relisted):
    play = relisted(RUNNING)
    play.event(STARTED, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    read = play.state.begin_read(UID, quietly=False, now=10.0)
    assert play.event(STOPPED, now=10.1) == ReadPod(UID)
    assert play.state.judge(confirmation, play.finish(read, RUNNING).reading, now=10.2) is None
    assert isinstance(play.confirm(RUNNING, now=10.3), ReadAgain)


@pytest.mark.parametrize(
    ("late", "shown"),
    [
        pytest.param(CREATED, BARE, id="created after it was deleted"),
        pytest.param(STARTED, BARE, id="started after it was deleted"),
        pytest.param(STOPPED, BARE, id="stopped after it was deleted"),
        pytest.param(CREATED, EXITED, id="created after it was stopped"),
        pytest.param(STARTED, EXITED, id="started after it was stopped"),
        pytest.param(CREATED, RUNNING, id="created after it was started"),
    ],
)
def test_an_event_that_comes_after_those_that_followed_it_is_read_once(relisted, late, shown):
    play = relisted(RUNNING)
    play.read(shown, now=5.0)
    assert play.event(late) == ReadPod(UID)
    assert play.confirm(shown) is None


def test_the_start_of_a_container_that_was_never_seen_is_waited_for(relisted):
    play = relisted(BARE)
    play.event(STARTED, "d-0", sandbox="sandbox-0")
    assert isinstance(play.confirm(BARE), ReadAgain)


def test_a_removal_that_was_shown_still_counts_if_a_later_read_goes_back_behind_it(relisted):
    play = relisted(RUNNING)
    play.event(DELETED)
    play.event(STARTED, "d-0", sandbox="sandbox-0")
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    assert isinstance(play.look(confirmation, BARE, now=10.0), ReadAgain)
    assert isinstance(play.look(confirmation, BOTH_RUNNING, now=10.1), ReadAgain)


def test_the_late_start_of_a_removed_sandbox_is_not_waited_for(relisted):
    play = relisted(RUNNING)
    play.event(STARTED, "sandbox-0")
    assert play.confirm(NOTHING) is None


def moved(state):
    """The container in a second sandbox."""
    record = make_record(POD, "c", state, sandbox="sandbox-1")
    return make_status(POD, record, sandboxes=[make_sandbox(attempt=1), make_sandbox(ready=False)])


def test_a_container_that_moves_to_another_sandbox_is_compared_where_it_is(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    assert isinstance(play.look(confirmation, moved(RuntimeContainerState.RUNNING), now=10.0), ReadAgain)
    assert play.look(confirmation, moved(RuntimeContainerState.EXITED), now=10.1) is None


# Doubts


@pytest.fixture
def in_doubt(relisted):
    """A pod whose container is said to have stopped, and is still shown as running a second later, at second 11."""
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.look(confirmation, RUNNING, now=10.0)
    assert play.look(confirmation, RUNNING, now=11.0) == ReadPod(UID, RELIST)
    return play


def test_a_pod_in_doubt_is_read_once_a_second_until_it_agrees(in_doubt):
    assert in_doubt.confirm(RUNNING, now=12.0) == ReadPod(UID, RELIST)
    assert in_doubt.confirm(EXITED, now=13.0) is None
    assert in_doubt.confirm(RUNNING, now=14.0) is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(70.9, ReadPod(UID, RELIST), id="within the time of the safety relist"),
        pytest.param(71.0, None, id="the safety relist has seen what there is to see"),
    ],
)
def test_a_doubt_ends(in_doubt, now, expected):
    assert in_doubt.confirm(RUNNING, now=now) == expected


def test_a_doubt_that_was_given_up_is_forgotten(in_doubt):
    in_doubt.confirm(RUNNING, now=71.0)
    assert in_doubt.confirm(RUNNING, now=72.0) is None


def test_an_event_about_a_pod_in_doubt_has_its_own_second_and_keeps_the_doubt(in_doubt):
    in_doubt.event(STARTED, "d-0", sandbox="sandbox-0", now=12.0)
    assert isinstance(in_doubt.confirm(EXITED, now=12.0), ReadAgain)
    in_doubt.event(CREATED, "d-0", sandbox="sandbox-0", now=12.5)
    assert isinstance(in_doubt.confirm(BOTH_RUNNING, now=12.5), ReadAgain)


def test_an_event_extends_the_time_to_agree(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.look(confirmation, RUNNING, now=10.0)
    play.event(STOPPED, now=10.9)
    assert isinstance(play.look(confirmation, RUNNING, now=10.9), ReadAgain)
    assert isinstance(play.look(confirmation, RUNNING, now=11.5), ReadAgain)
    assert play.look(confirmation, RUNNING, now=11.9) == ReadPod(UID, RELIST)


# A read that fails


def test_what_events_said_waits_for_a_read_that_succeeds(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED)
    assert play.confirm(FAILURE, now=10.0) is None
    assert isinstance(play.confirm(RUNNING, now=11.0), ReadAgain)


def test_an_event_during_a_read_that_fails_goes_before_those_from_before(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(UID, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    read = play.state.begin_read(UID, quietly=False, now=10.0)
    play.event(DELETED, now=10.5)
    assert play.state.judge(confirmation, play.finish(read, FAILURE).reading, now=20.0) is None
    assert isinstance(play.confirm(EXITED, now=21.0), ReadAgain)


def test_a_failed_read_settles_no_doubt(in_doubt):
    assert in_doubt.confirm(FAILURE, now=12.0) is None
    assert isinstance(in_doubt.confirm(RUNNING, now=13.0), ReadAgain)


@pytest.mark.parametrize(
    ("cached", "listed", "expected"),
    [
        pytest.param(RUNNING, EXITED, RUNNING, id="what was read last"),
        pytest.param(None, EXITED, EXITED, id="of a pod that could never be read, its record"),
        pytest.param(None, None, NOTHING, id="of a pod that nothing has shown, nothing"),
    ],
)
def test_a_failed_read_shows_what_is_known_and_is_tried_again(play, cached, listed, expected):
    relist = play.state.begin_relist(at=NOW, now=1.0)
    play.state.end_relist(relist, {UID: listed} if listed is not None else {}, now=1.0)
    if cached is not None:
        play.read(cached)
    read = play.state.begin_read(UID, quietly=True, now=5.0)
    update = play.state.fail_read(read, FAILURE)
    assert update == CacheUpdate(Reading(expected, 5.0, FAILURE), quietly=True, retry=ReadPod(UID, RELIST))
