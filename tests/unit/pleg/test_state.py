"""Playbooks of the PLEG: events, streams and relists, and what it asks for then."""

from datetime import timedelta

import pytest

from klet.cri.events import EventKind
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.pleg.state import AT_ONCE, OWN_STARTS, FindOwner, ReadAgain, ReadPod, RelistNow, RelistResult
from klet.testing.builders import NOW, make_pod, make_record, make_sandbox, make_status

RELIST, SAFETY_RELIST = timedelta(seconds=1), timedelta(seconds=60)
CREATED, STARTED, STOPPED = EventKind.CREATED, EventKind.STARTED, EventKind.STOPPED
DELETED, OOM = EventKind.DELETED, EventKind.OOM
FAILURE = KletError("no answer")

UID, OTHER_UID = PodUID("uid-1"), PodUID("uid-2")
POD, OTHER_POD = make_pod("c", "d"), make_pod("c", "d", uid="uid-2")
BARE = make_status(POD)
MADE = make_status(POD, make_record(POD, "c", RuntimeContainerState.CREATED))
RUNNING = make_status(POD, make_record(POD, "c"))
EXITED = make_status(POD, make_record(POD, "c", RuntimeContainerState.EXITED))
DYING = make_status(POD, make_record(POD, "c"), sandboxes=[make_sandbox(ready=False)])
NOTHING = PodRuntimeStatus(uid=UID)
SECOND_SANDBOX = [make_sandbox(attempt=1)]
MOVED = make_status(POD, make_record(POD, "c", sandbox="sandbox-1"), sandboxes=SECOND_SANDBOX)
OTHER = make_status(OTHER_POD, sandboxes=SECOND_SANDBOX)
OTHER_HAS_IT = make_status(OTHER_POD, make_record(OTHER_POD, "c", sandbox="sandbox-1"), sandboxes=SECOND_SANDBOX)


def nothing(_play):
    pass


# Time and health


def test_marks_follow_the_clock_and_differ_at_one_time(play):
    state = play.state
    marks = [state.mark(now) for now in (1.0, 1.0, 1.0, 2.0, 2.0)]
    assert marks == sorted(set(marks))
    assert (marks[0], marks[3]) == (1.0, 2.0)


def test_a_clock_that_stands_behind_the_last_mark_gives_a_later_one_all_the_same(play):
    state = play.state
    first = state.mark(5.0)
    assert first < state.mark(4.0) < 5.1


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(None, "pleg has yet to be successful", id="never relisted"),
        pytest.param(timedelta(0), None, id="just relisted"),
        pytest.param(timedelta(minutes=3), None, id="at the threshold"),
        pytest.param(
            timedelta(minutes=3, seconds=1),
            "pleg was last seen active 3m1s ago; threshold is 3m0s",
            id="beyond the threshold",
        ),
    ],
)
def test_health(play, age, expected):
    if age is not None:
        play.relist()
    assert play.state.health_error(NOW + (age or AT_ONCE)) == expected


def test_a_relist_counts_once_it_is_complete_and_as_of_its_beginning(play):
    state = play.state
    relist = state.begin_relist(at=NOW, now=1.0)
    state.end_relist(relist, {UID: RUNNING}, now=2.0)
    assert state.health_error(NOW) == "pleg has yet to be successful"
    state.complete_relist(relist)
    assert state.health_error(NOW + timedelta(minutes=3)) is None
    assert state.health_error(NOW + timedelta(minutes=3, seconds=1)) is not None


# An event arrives: whose is it?


def known_by_relist(play):
    play.relist(RUNNING, now=3.0)


def known_by_read(play):
    play.read(RUNNING)


def known_by_search(play):
    play.event(CREATED)
    play.state.end_search("c-0", UID, now=3.0)


def moved_to_another_pod(play):
    play.read(OTHER_HAS_IT)
    play.read(RUNNING)


def moved_to_another_sandbox(play):
    play.read(RUNNING)
    play.read(MOVED)


@pytest.mark.parametrize("kind", [CREATED, STARTED, STOPPED, DELETED, OOM])
@pytest.mark.parametrize(
    "before",
    [known_by_relist, known_by_read, known_by_search, moved_to_another_pod, moved_to_another_sandbox],
    ids=lambda each: each.__name__.replace("_", " "),
)
def test_an_event_of_a_container_whose_pod_is_known_leads_to_a_read(relisted, before, kind):
    play = relisted()
    before(play)
    assert play.event(kind) == ReadPod(UID)


@pytest.mark.parametrize(
    ("member", "sandbox", "expected"),
    [
        pytest.param("sandbox-0", None, ReadPod(UID), id="the sandbox itself"),
        pytest.param("d-0", "sandbox-0", ReadPod(UID), id="a new container of a known sandbox"),
        pytest.param("d-0", "sandbox-1", FindOwner("d-0"), id="a new container of an unknown sandbox"),
        pytest.param("d-0", None, FindOwner("d-0"), id="a new container of which no sandbox is known"),
    ],
)
def test_an_event_finds_its_pod_by_container_or_sandbox(relisted, member, sandbox, expected):
    assert relisted(RUNNING).event(CREATED, member, sandbox=sandbox) == expected


def test_a_read_shows_whose_a_sandbox_is(relisted):
    play = relisted()
    play.read(RUNNING)
    assert play.event(CREATED, "d-0", sandbox="sandbox-0") == ReadPod(UID)


def test_the_container_goes_before_the_sandbox(relisted):
    play = relisted(RUNNING, OTHER)
    assert play.event(STOPPED, sandbox="sandbox-1") == ReadPod(UID)


@pytest.mark.parametrize(
    ("changes", "kind", "after"),
    [
        pytest.param(0, CREATED, AT_ONCE, id="nothing changes: created"),
        pytest.param(0, STOPPED, AT_ONCE, id="nothing changes: stopped"),
        pytest.param(1, CREATED, OWN_STARTS, id="klet changes a pod: created"),
        pytest.param(2, STARTED, OWN_STARTS, id="klet changes two pods: started"),
        pytest.param(1, STOPPED, AT_ONCE, id="klet changes a pod: stopped"),
        pytest.param(1, DELETED, AT_ONCE, id="klet changes a pod: deleted"),
        pytest.param(1, OOM, AT_ONCE, id="klet changes a pod: out of memory"),
    ],
)
def test_a_search_waits_while_the_start_may_be_klets_own(relisted, changes, kind, after):
    play = relisted()
    for _ in range(changes):
        play.state.begin_change()
    assert play.event(kind) == FindOwner("c-0", after)


def test_a_change_that_has_ended_holds_up_no_search_and_leads_to_a_read(relisted):
    play = relisted()
    play.state.begin_change()
    assert play.state.end_change(UID, now=5.0) == ReadPod(UID)
    assert play.event(STARTED) == FindOwner("c-0")


# Strays


@pytest.mark.parametrize(
    ("kind", "reading", "expected"),
    [
        pytest.param(STARTED, None, ReadPod(UID), id="the pod was never read"),
        pytest.param(STARTED, RUNNING, None, id="what the event said has been read since"),
        pytest.param(STARTED, MADE, ReadPod(UID), id="it was read since, and does not show it"),
        pytest.param(STARTED, FAILURE, ReadPod(UID), id="the read since has failed"),
        pytest.param(OOM, RUNNING, None, id="nothing is waited for after a lack of memory"),
    ],
)
def test_a_stray_whose_owner_is_found_is_read_unless_it_is_shown(relisted, kind, reading, expected):
    play = relisted()
    play.event(kind, now=10.0)
    if reading is not None:
        play.read(reading, now=11.0)
    assert play.state.end_search("c-0", UID, now=12.0) == expected
    assert play.state.owner_of("c-0") == UID


def test_a_stray_whose_pod_was_read_before_the_event_is_read_again(relisted):
    play = relisted()
    read = play.state.begin_read(UID, quietly=False, now=9.0)
    play.event(STARTED, now=10.0)
    play.finish(read, RUNNING)
    assert play.state.end_search("c-0", UID, now=11.0) == ReadPod(UID)


def test_a_stray_that_was_shown_is_read_again_if_its_pod_cannot_be_read_now(relisted):
    play = relisted()
    play.event(STARTED, now=10.0)
    play.read(RUNNING, now=11.0)
    play.read(FAILURE, now=11.5)
    assert play.state.end_search("c-0", UID, now=12.0) == ReadPod(UID)


def test_what_a_stray_said_is_waited_for_once_its_owner_is_known(relisted):
    play = relisted()
    play.event(STOPPED)
    play.state.end_search("c-0", UID, now=11.0)
    assert isinstance(play.confirm(RUNNING, now=11.0), ReadAgain)


def test_of_two_events_of_a_stray_the_newer_counts(relisted):
    play = relisted()
    play.event(STARTED, now=10.0)
    play.event(STOPPED, now=11.0)
    play.state.end_search("c-0", UID, now=12.0)
    assert isinstance(play.confirm(RUNNING, now=12.0), ReadAgain)


@pytest.mark.parametrize(
    "is_stray", [pytest.param(True, id="its event waits"), pytest.param(False, id="its event is settled already")]
)
def test_a_search_that_finds_no_owner_asks_for_nothing(relisted, is_stray):
    play = relisted()
    if is_stray:
        play.event(CREATED)
    assert play.state.end_search("c-0", None, now=11.0) is None
    assert play.state.owner_of("c-0") is None


def test_a_second_search_for_the_same_container_settles_nothing_more(relisted):
    play = relisted()
    play.event(STARTED)
    play.state.end_search("c-0", UID, now=11.0)
    assert play.state.end_search("c-0", UID, now=12.0) is None


def test_after_a_failed_search_the_lists_have_to_show_what_happened(relisted):
    play = relisted()
    play.event(STARTED)
    assert play.state.fail_search("c-0") == RelistNow()
    assert play.state.end_search("c-0", UID, now=11.0) is None


# The stream


def opened(state):
    assert state.open_stream(now=10.0) == RelistNow()


def lost(state):
    opened(state)
    assert state.lose_stream() == RelistNow()


def regained(state):
    state.open_stream(now=5.0)
    state.lose_stream()
    opened(state)


def never_opened(_state):
    pass


@pytest.mark.parametrize(
    ("stream", "began", "pause"),
    [
        pytest.param(never_opened, 20.0, RELIST, id="no stream"),
        pytest.param(opened, 9.0, RELIST, id="a relist from before it was open"),
        pytest.param(opened, 10.5, RELIST, id="a relist while the runtime may not send yet"),
        pytest.param(opened, 11.0, SAFETY_RELIST, id="a relist a second after it was opened"),
        pytest.param(lost, 20.0, RELIST, id="the stream is lost"),
        pytest.param(regained, 10.5, RELIST, id="the stream is just regained"),
        pytest.param(regained, 11.0, SAFETY_RELIST, id="the stream is regained for a second"),
    ],
)
def test_the_pause_between_relists(play, stream, began, pause):
    state = play.state
    stream(state)
    assert state.pause_after(state.begin_relist(at=NOW, now=began)) == pause


def test_a_lost_stream_keeps_what_events_said(relisted):
    play = relisted(RUNNING)
    play.state.open_stream(now=5.0)
    play.event(STOPPED, now=10.0)
    play.state.lose_stream()
    assert isinstance(play.confirm(RUNNING, now=11.0), ReadAgain)


# Relists


def test_the_first_relist_has_the_cache_filled_before_it_counts(play):
    relist = play.state.begin_relist(at=NOW, now=1.0)
    found = play.state.end_relist(relist, {OTHER_UID: OTHER, UID: RUNNING}, now=2.0)
    assert found == RelistResult(fill=(UID, OTHER_UID))


def test_until_a_relist_is_complete_the_next_one_fills_the_cache(play):
    for now in (1.0, 2.0):
        relist = play.state.begin_relist(at=NOW, now=now)
        assert play.state.end_relist(relist, {UID: RUNNING}, now=now) == RelistResult(fill=(UID,))


def missed_read(play):
    play.read(OTHER, now=5.0)


def removal_read(play):
    play.read(NOTHING, now=5.0)


def end_read(play):
    play.read(EXITED, now=5.0)


def failed_read(play):
    play.read(FAILURE, now=5.0)


@pytest.mark.parametrize(
    ("before", "listed", "expected"),
    [
        pytest.param(nothing, (RUNNING,), [], id="nothing has changed"),
        pytest.param(nothing, (RUNNING, OTHER), [OTHER_UID], id="a pod that no event announced"),
        pytest.param(nothing, (EXITED,), [UID], id="an end that no event announced"),
        pytest.param(nothing, (DYING,), [UID], id="a dead sandbox that no event announced"),
        pytest.param(nothing, (MOVED,), [UID], id="a container in another sandbox"),
        pytest.param(nothing, (), [UID], id="a removal that no event announced"),
        pytest.param(end_read, (EXITED,), [], id="an end that was read since"),
        pytest.param(removal_read, (), [], id="a removal that was read since"),
        pytest.param(failed_read, (RUNNING,), [UID], id="a pod that could not be read"),
        pytest.param(missed_read, (RUNNING,), [OTHER_UID], id="a pod that came and went between two relists"),
        pytest.param(nothing, (EXITED, OTHER), [UID, OTHER_UID], id="several pods"),
    ],
)
def test_a_relist_reads_what_no_event_announced(relisted, before, listed, expected):
    play = relisted(RUNNING)
    before(play)
    assert play.relist(*listed, now=20.0) == RelistResult(reads=tuple(ReadPod(uid) for uid in expected))


def test_a_pod_that_came_during_a_relist_is_not_taken_to_be_gone(relisted):
    play = relisted(RUNNING)
    relist = play.state.begin_relist(at=NOW, now=20.0)
    play.read(OTHER, now=20.5)
    assert play.state.end_relist(relist, {UID: RUNNING}, now=21.0) == RelistResult()


def test_lists_that_always_differ_from_reads_are_believed_once(relisted):
    play = relisted(RUNNING)
    assert play.relist(EXITED, now=20.0).reads == (ReadPod(UID),)
    play.read(RUNNING, now=21.0)
    assert play.relist(EXITED, now=80.0).reads == ()


def test_what_a_relist_asks_for_is_read_from_then_on(relisted):
    play = relisted(RUNNING)
    play.relist(EXITED, now=20.0)
    confirmation = play.state.begin_confirmation(UID, now=25.0)
    assert 20.0 < play.state.next_read(confirmation, now=25.0) < 20.1


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param((RUNNING,), ReadPod(UID), id="the same pod has it"),
        pytest.param((OTHER_HAS_IT,), ReadPod(OTHER_UID), id="another pod has it"),
        pytest.param((BARE,), FindOwner("c-0"), id="no pod has it any more"),
        pytest.param((), FindOwner("c-0"), id="its pod is gone"),
    ],
)
def test_after_a_relist_containers_belong_to_the_pods_that_it_listed(relisted, listed, expected):
    play = relisted(RUNNING)
    play.relist(*listed, now=20.0)
    assert play.event(STOPPED, now=21.0) == expected


def test_a_relist_does_not_settle_what_events_said(relisted):
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    play.relist(RUNNING, now=11.0)
    assert isinstance(play.confirm(RUNNING, now=12.0), ReadAgain)
