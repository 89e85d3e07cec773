"""Playbooks of the PLEG: what happened, and what it asks for then."""

from datetime import timedelta

import pytest

from klet.cri.events import EventKind, RuntimeEvent
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import (
    ContainerId,
    ContainerRecord,
    ContainerState,
    FirstStart,
    PodRuntimeStatus,
    SandboxId,
    SandboxRecord,
)
from klet.pleg.cache import Reading, RuntimeCache
from klet.pleg.state import (
    AT_ONCE,
    NEVER,
    OWN_STARTS,
    CacheUpdate,
    Confirmation,
    FindOwner,
    LookAgain,
    PlegState,
    PodRead,
    ReadPod,
    RelistNow,
    RelistResult,
)
from klet.testing.builders import NOW

RELIST, SAFETY_RELIST = timedelta(seconds=1), timedelta(seconds=60)
CREATED, STARTED, STOPPED = EventKind.CREATED, EventKind.STARTED, EventKind.STOPPED
DELETED, OOM = EventKind.DELETED, EventKind.OOM
A, B = PodUID("a"), PodUID("b")
FAILURE = KletError("no answer")


def show(uid: PodUID = A, *, sandbox: str = "", ready: bool = True, ips: tuple[str, ...] = (), **containers: str):
    """A pod with one sandbox and containers by state; their ids are their names."""
    name = SandboxId(sandbox or f"{uid}-sandbox")
    return PodRuntimeStatus(
        uid=uid,
        ips=ips,
        sandboxes=(SandboxRecord(id=name, attempt=0, ready=ready, created_at=NOW, ips=ips),),
        containers=tuple(
            ContainerRecord(
                id=ContainerId(each), sandbox_id=name, name=each, state=ContainerState(state), created_at=NOW
            )
            for each, state in containers.items()
        ),
    )


def empty(uid: PodUID = A) -> PodRuntimeStatus:
    return PodRuntimeStatus(uid=uid)


RUNNING, EXITED, MADE = show(c="running"), show(c="exited"), show(c="created")
BARE = show()


class Play:
    """The state, the cache it reads, and short ways to give inputs as the PLEG gives them."""

    def __init__(self) -> None:
        self.cache = RuntimeCache()
        self.state = PlegState(cache=self.cache, relist=RELIST, safety_relist=SAFETY_RELIST)

    def event(self, kind: EventKind, member: str = "c", *, sandbox: str | None = None, now: float = 10.0):
        return self.state.note_event(RuntimeEvent(kind, member, sandbox, NOW), now=now)

    def relist(self, *pods: PodRuntimeStatus, now: float = 1.0) -> RelistResult:
        """A whole relist; the first one fills the cache."""
        relist = self.state.begin_relist(at=NOW, now=now)
        listed = {pod.uid: pod for pod in pods}
        found = self.state.end_relist(relist, listed, now=now)
        self.cache.forget_empty(read_before=relist.began, keep=listed.keys())
        for uid in found.fill:
            self.read(listed[uid], now=now)
        self.state.complete_relist(relist)
        return found

    def read(self, outcome: PodRuntimeStatus | KletError, uid: PodUID = A, *, now: float = 2.0) -> Reading:
        """A whole read of a pod."""
        uid = outcome.uid if isinstance(outcome, PodRuntimeStatus) else uid
        return self.finish(self.state.begin_read(uid, quietly=False, now=now), outcome).reading

    def finish(self, read: PodRead, outcome: PodRuntimeStatus | KletError) -> CacheUpdate:
        if isinstance(outcome, KletError):
            update = self.state.fail_read(read, outcome)
        else:
            update = self.state.end_read(read, outcome)
        self.cache.put(update.reading, quietly=update.quietly)
        self.state.leave_read(read)
        return update

    def confirm(self, *outcomes: PodRuntimeStatus | KletError, now: float = 10.0):
        """One read of the pod from the queue, compared with what events said; the last verdict."""
        confirmation = self.state.begin_confirmation(A, now=now)
        verdict = None
        for outcome in outcomes:
            verdict = self.look(confirmation, outcome, now=now)
            now += verdict.after.total_seconds() if isinstance(verdict, LookAgain) else 0.0
        return verdict

    def look(self, confirmation: Confirmation, outcome: PodRuntimeStatus | KletError, *, now: float):
        self.state.next_read(confirmation, now=now)
        return self.state.judge(confirmation, self.read(outcome, now=now), now=now)


def relisted(*pods: PodRuntimeStatus) -> Play:
    """A PLEG after its first relist at second 1."""
    play = Play()
    play.relist(*pods)
    return play


# Time and health


def test_marks_follow_the_clock_and_differ_at_one_time():
    state = Play().state
    marks = [state.mark(now) for now in (1.0, 1.0, 1.0, 2.0, 2.0)]
    assert marks == sorted(set(marks))
    assert (marks[0], marks[3]) == (1.0, 2.0)


def test_a_clock_that_stands_behind_the_last_mark_gives_a_later_one_all_the_same():
    state = Play().state
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
def test_health(age, expected):
    play = Play() if age is None else relisted()
    assert play.state.health_error(NOW + (age or AT_ONCE)) == expected


def test_a_relist_counts_once_it_is_complete_and_as_of_its_beginning():
    state = Play().state
    relist = state.begin_relist(at=NOW, now=1.0)
    state.end_relist(relist, {A: RUNNING}, now=2.0)
    assert state.health_error(NOW) == "pleg has yet to be successful"
    state.complete_relist(relist)
    assert state.health_error(NOW + timedelta(minutes=3)) is None
    assert state.health_error(NOW + timedelta(minutes=3, seconds=1)) is not None


# An event arrives: whose is it?


def known_by_relist(play: Play) -> None:
    play.relist(RUNNING, now=3.0)


def known_by_read(play: Play) -> None:
    play.read(RUNNING)


def known_by_search(play: Play) -> None:
    play.event(CREATED)
    play.state.end_search("c", A, now=3.0)


def moved_to_another_pod(play: Play) -> None:
    play.read(show(B, c="running"))
    play.read(RUNNING)


def moved_to_another_sandbox(play: Play) -> None:
    play.read(RUNNING)
    play.read(show(sandbox="second", c="running"))


@pytest.mark.parametrize("kind", [CREATED, STARTED, STOPPED, DELETED, OOM])
@pytest.mark.parametrize(
    "before",
    [known_by_relist, known_by_read, known_by_search, moved_to_another_pod, moved_to_another_sandbox],
    ids=lambda each: each.__name__.replace("_", " "),
)
def test_an_event_of_a_container_whose_pod_is_known_leads_to_a_read(before, kind):
    play = relisted()
    before(play)
    assert play.event(kind) == ReadPod(A)


@pytest.mark.parametrize(
    ("member", "sandbox", "expected"),
    [
        pytest.param("a-sandbox", None, ReadPod(A), id="the sandbox itself"),
        pytest.param("new", "a-sandbox", ReadPod(A), id="a new container of a known sandbox"),
        pytest.param("new", "b-sandbox", FindOwner("new"), id="a new container of an unknown sandbox"),
        pytest.param("new", None, FindOwner("new"), id="a new container of which no sandbox is known"),
    ],
)
def test_an_event_finds_its_pod_by_container_or_sandbox(member, sandbox, expected):
    assert relisted(RUNNING).event(CREATED, member, sandbox=sandbox) == expected


def test_the_container_goes_before_the_sandbox():
    play = relisted(RUNNING, show(B))
    assert play.event(STOPPED, sandbox="b-sandbox") == ReadPod(A)


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
def test_a_search_waits_while_the_start_may_be_klets_own(changes, kind, after):
    play = relisted()
    for _ in range(changes):
        play.state.begin_change()
    assert play.event(kind) == FindOwner("c", after)


def test_a_change_that_has_ended_holds_up_no_search_and_leads_to_a_read():
    play = relisted()
    play.state.begin_change()
    assert play.state.end_change(A, now=5.0) == ReadPod(A)
    assert play.event(STARTED) == FindOwner("c")


# Strays


@pytest.mark.parametrize(
    ("kind", "reading", "read_at", "expected"),
    [
        pytest.param(STARTED, None, 0.0, ReadPod(A), id="the pod was never read"),
        pytest.param(STARTED, RUNNING, 11.0, None, id="what the event said has been read since"),
        pytest.param(STARTED, RUNNING, 9.0, ReadPod(A), id="it was read, but before the event"),
        pytest.param(STARTED, MADE, 11.0, ReadPod(A), id="it was read since, and does not show it"),
        pytest.param(STARTED, FAILURE, 11.0, ReadPod(A), id="the read since has failed"),
        pytest.param(OOM, RUNNING, 11.0, None, id="nothing is waited for after a lack of memory"),
    ],
)
def test_a_stray_whose_owner_is_found_is_read_unless_it_is_shown(kind, reading, read_at, expected):
    play = relisted()
    if reading is not None and read_at < 10.0:
        play.read(reading, now=read_at)
        play.relist(now=9.5)  # which does not list it: the cache knows more than the relist
    play.event(kind, now=10.0)
    if reading is not None and read_at > 10.0:
        play.read(reading, now=read_at)
    assert play.state.end_search("c", A, now=12.0) == expected
    assert play.state.owner_of("c") == A


def test_what_a_stray_said_is_waited_for_once_its_owner_is_known():
    play = relisted()
    play.event(STOPPED)
    play.state.end_search("c", A, now=11.0)
    assert play.confirm(RUNNING, EXITED, now=11.0) is None
    play.event(STOPPED, "d")
    play.state.end_search("d", A, now=12.0)
    assert isinstance(play.confirm(show(d="running"), now=12.0), LookAgain)


def test_of_two_events_of_a_stray_the_newer_counts():
    play = relisted()
    play.event(STARTED, now=10.0)
    play.event(STOPPED, now=11.0)
    play.state.end_search("c", A, now=12.0)
    assert isinstance(play.confirm(RUNNING, now=12.0), LookAgain)


@pytest.mark.parametrize(
    "is_stray", [pytest.param(True, id="its event waits"), pytest.param(False, id="its event is settled already")]
)
def test_a_search_that_finds_no_owner_asks_for_nothing(is_stray):
    play = relisted()
    if is_stray:
        play.event(CREATED)
    assert play.state.end_search("c", None, now=11.0) is None
    assert play.state.owner_of("c") is None


def test_a_second_search_for_the_same_container_settles_nothing_more():
    play = relisted()
    play.event(STARTED)
    play.state.end_search("c", A, now=11.0)
    assert play.state.end_search("c", A, now=12.0) is None


def test_after_a_failed_search_the_lists_have_to_show_what_happened():
    play = relisted()
    play.event(STARTED)
    assert play.state.fail_search("c") == RelistNow()
    assert play.state.end_search("c", A, now=11.0) is None


# Reads until they agree with the events


@pytest.mark.parametrize(
    ("kind", "member", "shown"),
    [
        pytest.param(STARTED, "c", RUNNING, id="started and running"),
        pytest.param(STOPPED, "c", EXITED, id="stopped and exited"),
        pytest.param(DELETED, "c", BARE, id="deleted and gone"),
        pytest.param(STOPPED, "a-sandbox", show(ready=False), id="a stopped sandbox"),
        pytest.param(DELETED, "a-sandbox", empty(), id="a removed sandbox"),
        pytest.param(CREATED, "c", BARE, id="a creation is not waited for"),
        pytest.param(OOM, "c", RUNNING, id="a lack of memory is not waited for"),
    ],
)
def test_one_read_is_enough_if_it_shows_what_the_event_said(kind, member, shown):
    play = relisted(RUNNING)
    play.event(kind, member)
    assert play.confirm(shown) is None
    assert play.cache.get(A).status == shown


@pytest.mark.parametrize(
    ("kind", "member", "shown"),
    [
        pytest.param(STARTED, "new", RUNNING, id="started, and not shown yet"),
        pytest.param(STARTED, "c", MADE, id="started, and shown as created"),
        pytest.param(STOPPED, "c", RUNNING, id="stopped, and shown as running"),
        pytest.param(DELETED, "c", EXITED, id="deleted, and still shown"),
        pytest.param(STOPPED, "a-sandbox", RUNNING, id="a stopped sandbox, shown as ready"),
        pytest.param(DELETED, "a-sandbox", show(ready=False), id="a removed sandbox, still shown"),
    ],
)
def test_a_read_that_contradicts_the_event_is_repeated(kind, member, shown):
    play = relisted(RUNNING)
    play.event(kind, member, sandbox="a-sandbox")
    assert play.confirm(shown) == LookAgain(timedelta(milliseconds=5))


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
def test_the_pause_between_reads_grows_with_the_time_that_has_passed(passed, pause):
    play = relisted(RUNNING)
    play.event(STOPPED)
    confirmation = play.state.begin_confirmation(A, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    verdict = play.state.judge(confirmation, play.read(RUNNING, now=10.0), now=10.0 + passed)
    assert verdict.after.total_seconds() == pytest.approx(pause, abs=1e-6)


def test_without_an_event_one_read_is_enough():
    play = relisted(RUNNING)
    play.state.request_read(A, now=10.0)
    assert play.confirm(EXITED) is None


def test_an_event_during_a_read_is_compared_with_the_next_one():
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(A, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    read = play.state.begin_read(A, quietly=False, now=10.0)
    assert play.event(DELETED, now=10.5) == ReadPod(A)
    update = play.finish(read, RUNNING)
    assert isinstance(play.state.judge(confirmation, update.reading, now=10.6), LookAgain)
    # Stopped alone would agree with this one; deleted does not, and has a second of its own.
    assert isinstance(play.look(confirmation, EXITED, now=11.2), LookAgain)
    assert play.look(confirmation, BARE, now=11.3) is None


def test_an_event_during_the_last_read_leads_to_another():
    play = relisted(RUNNING)
    play.event(STARTED, now=10.0)
    confirmation = play.state.begin_confirmation(A, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    read = play.state.begin_read(A, quietly=False, now=10.0)
    assert play.event(STOPPED, now=10.1) == ReadPod(A)
    assert play.state.judge(confirmation, play.finish(read, RUNNING).reading, now=10.2) is None
    assert isinstance(play.confirm(RUNNING, now=10.3), LookAgain)


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
def test_an_event_that_comes_after_those_that_followed_it_is_read_once(late, shown):
    play = relisted(RUNNING)
    play.read(shown, now=5.0)
    assert play.event(late) == ReadPod(A)
    assert play.confirm(shown) is None


def test_the_start_of_a_container_that_was_never_seen_is_waited_for():
    play = relisted(BARE)
    play.event(STARTED, "new", sandbox="a-sandbox")
    assert isinstance(play.confirm(BARE), LookAgain)


def test_the_late_start_of_a_removed_sandbox_is_not_waited_for():
    play = relisted(RUNNING)
    play.event(STARTED, "a-sandbox")
    assert play.confirm(empty()) is None


def test_a_container_that_moves_to_another_sandbox_is_compared_where_it_is():
    play = relisted(RUNNING)
    play.event(STOPPED)
    assert isinstance(play.confirm(show(sandbox="second", c="running")), LookAgain)
    play.event(STOPPED)
    assert play.confirm(show(sandbox="second", c="exited")) is None


# Doubts


def in_doubt(*, since: float = 11.0) -> Play:
    """A pod whose container is said to have stopped, and is shown as running a second later."""
    play = relisted(RUNNING)
    play.event(STOPPED, now=since - 1)
    confirmation = play.state.begin_confirmation(A, now=since - 1)
    play.look(confirmation, RUNNING, now=since - 1)
    assert play.look(confirmation, RUNNING, now=since) == ReadPod(A, RELIST)
    return play


def test_a_pod_in_doubt_is_read_once_a_second_until_it_agrees():
    play = in_doubt(since=11.0)
    assert play.confirm(RUNNING, now=12.0) == ReadPod(A, RELIST)
    assert play.confirm(EXITED, now=13.0) is None
    assert play.confirm(RUNNING, now=14.0) is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(70.9, ReadPod(A, RELIST), id="within the time of the safety relist"),
        pytest.param(71.0, None, id="the safety relist has seen what there is to see"),
    ],
)
def test_a_doubt_ends(now, expected):
    assert in_doubt(since=11.0).confirm(RUNNING, now=now) == expected


def test_a_doubt_that_was_given_up_is_forgotten():
    play = in_doubt(since=11.0)
    play.confirm(RUNNING, now=71.0)
    assert play.confirm(RUNNING, now=72.0) is None


def test_an_event_about_a_pod_in_doubt_has_its_own_second_and_keeps_the_doubt():
    play = in_doubt(since=11.0)
    play.event(STARTED, "new", sandbox="a-sandbox", now=12.0)
    assert isinstance(play.confirm(show(c="exited"), now=12.0), LookAgain)
    play.event(CREATED, "new", sandbox="a-sandbox", now=12.5)
    assert isinstance(play.confirm(show(c="running", new="running"), now=12.5), LookAgain)


def test_an_event_extends_the_time_to_agree():
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(A, now=10.0)
    play.look(confirmation, RUNNING, now=10.0)
    play.event(STOPPED, now=10.9)
    assert isinstance(play.look(confirmation, RUNNING, now=10.9), LookAgain)
    assert isinstance(play.look(confirmation, RUNNING, now=11.5), LookAgain)
    assert play.look(confirmation, RUNNING, now=11.9) == ReadPod(A, RELIST)


# A read that fails


def test_what_events_said_waits_for_a_read_that_succeeds():
    play = relisted(RUNNING)
    play.event(STOPPED)
    assert play.confirm(FAILURE, now=10.0) is None
    assert isinstance(play.confirm(RUNNING, now=11.0), LookAgain)


def test_an_event_during_a_read_that_fails_goes_before_those_from_before():
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    confirmation = play.state.begin_confirmation(A, now=10.0)
    play.state.next_read(confirmation, now=10.0)
    read = play.state.begin_read(A, quietly=False, now=10.0)
    play.event(DELETED, now=10.5)
    assert play.state.judge(confirmation, play.finish(read, FAILURE).reading, now=20.0) is None
    assert isinstance(play.confirm(EXITED, now=21.0), LookAgain)


def test_a_failed_read_settles_no_doubt():
    play = in_doubt(since=11.0)
    assert play.confirm(FAILURE, now=12.0) is None
    assert isinstance(play.confirm(RUNNING, now=13.0), LookAgain)


@pytest.mark.parametrize(
    ("cached", "listed", "expected"),
    [
        pytest.param(RUNNING, EXITED, RUNNING, id="what was read last"),
        pytest.param(None, EXITED, EXITED, id="of a pod that could never be read, its record"),
        pytest.param(None, None, empty(), id="of a pod that nothing has shown, nothing"),
    ],
)
def test_a_failed_read_shows_what_is_known_and_is_tried_again(cached, listed, expected):
    play = Play()
    relist = play.state.begin_relist(at=NOW, now=1.0)
    play.state.end_relist(relist, {A: listed} if listed is not None else {}, now=1.0)
    if cached is not None:
        play.read(cached)
    read = play.state.begin_read(A, quietly=True, now=5.0)
    update = play.state.fail_read(read, FAILURE)
    assert update == CacheUpdate(Reading(expected, 5.0, FAILURE), quietly=True, retry=ReadPod(A, RELIST))


# Which reading serves a caller


def being_read(play: Play) -> None:
    play.state.begin_read(A, quietly=False, now=5.0)


def requested(play: Play) -> None:
    play.state.request_read(A, now=5.0)


def with_a_stray(play: Play) -> None:
    play.event(STARTED, "unknown", now=5.0)


def settled_stray(play: Play) -> None:
    with_a_stray(play)
    play.state.end_search("unknown", None, now=6.0)


def left_read(play: Play) -> None:
    play.state.leave_read(play.state.begin_read(A, quietly=False, now=5.0))


def nothing(_play: Play) -> None:
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
        pytest.param(settled_stray, NEVER, True, id="the event was not of a pod"),
    ],
)
def test_a_pod_that_the_runtime_never_showed_is_known_to_be_empty(before, newer_than, is_known):
    play = relisted()
    before(play)
    expected = Reading(empty(), NEVER) if is_known else None
    assert play.state.usable_reading(A, newer_than=newer_than) == expected


def test_before_the_first_relist_nothing_is_known_of_a_pod():
    assert Play().state.usable_reading(A, newer_than=NEVER) is None


def test_a_pod_with_a_record_and_no_reading_has_to_be_read():
    play = relisted(RUNNING)
    play.cache.forget(A)
    assert play.state.usable_reading(A, newer_than=NEVER) is None


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
def test_the_cached_reading_serves_callers_from_before_it_began(outcome, newer_than, serves):
    play = relisted()
    reading = play.read(outcome, now=5.0)
    assert play.state.usable_reading(A, newer_than=newer_than) == (reading if serves else None)


@pytest.mark.parametrize(
    ("newer_than", "joins"),
    [
        pytest.param(4.0, True, id="it began later"),
        pytest.param(5.0, False, id="it began at that very instant"),
        pytest.param(6.0, False, id="it began before"),
        pytest.param(NEVER, False, id="who has never seen the pod reads for itself"),
    ],
)
def test_a_read_under_way_serves_callers_from_before_it_began(newer_than, joins):
    play = relisted()
    read = play.state.begin_read(A, quietly=False, now=5.0)
    assert play.state.join_read(A, newer_than=newer_than, quietly=False) is (read if joins else None)
    assert play.state.join_read(B, newer_than=newer_than, quietly=False) is None


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
def test_a_reading_that_the_worker_waits_for_does_not_wake_it(begun, joined, expected):
    play = relisted()
    read = play.state.begin_read(A, quietly=begun, now=5.0)
    if joined is not None:
        play.state.join_read(A, newer_than=4.0, quietly=joined)
    assert play.state.end_read(read, RUNNING) == CacheUpdate(Reading(RUNNING, 5.0), quietly=expected)


def test_a_read_that_is_over_is_not_joined():
    play = relisted()
    play.read(RUNNING, now=5.0)
    assert play.state.join_read(A, newer_than=4.0, quietly=False) is None


def test_the_end_of_an_older_read_leaves_the_newer_one():
    play = relisted()
    older = play.state.begin_read(A, quietly=False, now=5.0)
    newer = play.state.begin_read(A, quietly=False, now=6.0)
    assert play.finish(older, RUNNING).reading.read_at == 5.0
    assert play.state.join_read(A, newer_than=4.0, quietly=False) is newer
    play.finish(newer, EXITED)
    assert play.state.join_read(A, newer_than=4.0, quietly=False) is None


def test_an_older_read_that_ends_last_does_not_replace_the_newer_one():
    play = relisted()
    older = play.state.begin_read(A, quietly=False, now=5.0)
    play.read(EXITED, now=6.0)
    play.finish(older, RUNNING)
    assert play.cache.get(A) == Reading(EXITED, 6.0)


def test_a_requested_read_may_have_begun_since_the_request_and_further_ones_begin_now():
    play = relisted(RUNNING)
    play.state.request_read(A, now=10.0)
    confirmation = play.state.begin_confirmation(A, now=12.0)
    assert play.state.next_read(confirmation, now=12.0) == 10.0
    assert play.state.next_read(confirmation, now=13.0) == 13.0


def test_a_read_that_nothing_requested_begins_now():
    play = relisted(RUNNING)
    confirmation = play.state.begin_confirmation(A, now=12.0)
    assert play.state.next_read(confirmation, now=12.0) == 12.0


def test_of_two_requests_the_later_counts():
    play = relisted(RUNNING)
    play.state.request_read(A, now=10.0)
    play.event(STOPPED, now=11.0)
    assert play.state.next_read(play.state.begin_confirmation(A, now=12.0), now=12.0) == 11.0


# Addresses


@pytest.mark.parametrize(
    ("cached", "shown", "ips"),
    [
        pytest.param(show(ips=("1",)), show(ready=False), ("1",), id="a dead sandbox keeps those of before"),
        pytest.param(show(ips=("1",)), show(ready=False, ips=("2",)), ("2",), id="unless it shows its own"),
        pytest.param(show(ips=("1",)), show(sandbox="second"), (), id="a live one without has none"),
        pytest.param(show(ips=("1",)), empty(), (), id="nor has a pod that is gone"),
        pytest.param(None, show(ready=False), (), id="nor one that was never read"),
    ],
)
def test_addresses(cached, shown, ips):
    play = Play()
    if cached is not None:
        play.read(cached)
    assert play.read(shown, now=5.0).status.ips == ips


# First starts

FIRST = FirstStart(RUNNING.sandboxes[0], (ContainerId("c"),))


def seen_running(play: Play) -> None:
    play.read(RUNNING)


def seen_empty(play: Play) -> None:
    play.read(empty())


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
def test_what_klet_has_just_made_need_not_be_searched_for(before, is_noted):
    play = relisted()
    before(play)
    play.state.note_first_start(A, FIRST)
    assert play.state.begin_read(A, quietly=False, now=9.0).first == (FIRST if is_noted else None)
    assert play.state.begin_read(A, quietly=False, now=9.0).first is None


# Relists


def test_the_first_relist_has_the_cache_filled_before_it_counts():
    play = Play()
    relist = play.state.begin_relist(at=NOW, now=1.0)
    found = play.state.end_relist(relist, {B: show(B), A: RUNNING}, now=2.0)
    assert found == RelistResult(fill=(A, B))


def test_until_a_relist_is_complete_the_next_one_fills_the_cache():
    play = Play()
    for now in (1.0, 2.0):
        relist = play.state.begin_relist(at=NOW, now=now)
        assert play.state.end_relist(relist, {A: RUNNING}, now=now) == RelistResult(fill=(A,))


def missed_read(play: Play) -> None:
    play.read(show(B, d="running"), now=5.0)


def removal_read(play: Play) -> None:
    play.read(empty(), now=5.0)


def end_read(play: Play) -> None:
    play.read(EXITED, now=5.0)


def failed_read(play: Play) -> None:
    play.read(FAILURE, now=5.0)


@pytest.mark.parametrize(
    ("before", "listed", "expected"),
    [
        pytest.param(nothing, (RUNNING,), [], id="nothing has changed"),
        pytest.param(nothing, (RUNNING, show(B)), [B], id="a pod that no event announced"),
        pytest.param(nothing, (EXITED,), [A], id="an end that no event announced"),
        pytest.param(nothing, (show(ready=False, c="running"),), [A], id="a dead sandbox that no event announced"),
        pytest.param(nothing, (show(sandbox="second", c="running"),), [A], id="a container in another sandbox"),
        pytest.param(nothing, (), [A], id="a removal that no event announced"),
        pytest.param(end_read, (EXITED,), [], id="an end that was read since"),
        pytest.param(removal_read, (), [], id="a removal that was read since"),
        pytest.param(failed_read, (RUNNING,), [A], id="a pod that could not be read"),
        pytest.param(missed_read, (RUNNING,), [B], id="a pod that came and went between two relists"),
        pytest.param(nothing, (EXITED, show(B)), [A, B], id="several pods"),
    ],
)
def test_a_relist_reads_what_no_event_announced(before, listed, expected):
    play = relisted(RUNNING)
    before(play)
    assert play.relist(*listed, now=20.0) == RelistResult(reads=tuple(ReadPod(uid) for uid in expected))


def test_a_pod_that_came_during_a_relist_is_not_taken_to_be_gone():
    play = relisted(RUNNING)
    relist = play.state.begin_relist(at=NOW, now=20.0)
    play.read(show(B, d="running"), now=20.5)
    assert play.state.end_relist(relist, {A: RUNNING}, now=21.0) == RelistResult()


def test_lists_that_always_differ_from_reads_are_believed_once():
    play = relisted(RUNNING)
    assert play.relist(EXITED, now=20.0).reads == (ReadPod(A),)
    play.read(RUNNING, now=21.0)
    assert play.relist(EXITED, now=80.0).reads == ()


def test_what_a_relist_asks_for_is_read_from_then_on():
    play = relisted(RUNNING)
    play.relist(EXITED, now=20.0)
    confirmation = play.state.begin_confirmation(A, now=25.0)
    assert 20.0 < play.state.next_read(confirmation, now=25.0) < 20.1


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param((RUNNING,), ReadPod(A), id="the same pod has it"),
        pytest.param((show(B, c="running"),), ReadPod(B), id="another pod has it"),
        pytest.param((BARE,), FindOwner("c"), id="no pod has it any more"),
        pytest.param((), FindOwner("c"), id="its pod is gone"),
    ],
)
def test_after_a_relist_containers_belong_to_the_pods_that_it_listed(listed, expected):
    play = relisted(RUNNING)
    play.relist(*listed, now=20.0)
    assert play.event(STOPPED, now=21.0) == expected


def test_a_relist_does_not_settle_what_events_said():
    play = relisted(RUNNING)
    play.event(STOPPED, now=10.0)
    play.relist(RUNNING, now=11.0)
    assert isinstance(play.confirm(RUNNING, now=12.0), LookAgain)


# The stream


def opened(state: PlegState) -> None:
    assert state.open_stream(now=10.0) == RelistNow()


def lost(state: PlegState) -> None:
    opened(state)
    assert state.lose_stream() == RelistNow()


def regained(state: PlegState) -> None:
    state.open_stream(now=5.0)
    state.lose_stream()
    opened(state)


def never_opened(_state: PlegState) -> None:
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
def test_the_pause_between_relists(stream, began, pause):
    state = Play().state
    stream(state)
    assert state.pause_after(state.begin_relist(at=NOW, now=began)) == pause


def test_a_lost_stream_keeps_what_events_said():
    play = relisted(RUNNING)
    play.state.open_stream(now=5.0)
    play.event(STOPPED, now=10.0)
    play.state.lose_stream()
    assert isinstance(play.confirm(RUNNING, now=11.0), LookAgain)
