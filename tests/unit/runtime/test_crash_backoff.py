from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import ResourceRequirements
from klet.api.quantity import Quantity
from klet.api.times import Duration
from klet.model.allocation import NOTHING
from klet.model.pods import PodUID
from klet.model.saved_state import CrashDelay, SavedState
from klet.runtime.crash_backoff import CrashBackoff, CrashBackoffLimits, choose_crash_backoff
from klet.status.checkpoint import SavedStateFormat
from klet.testing.builders import NOW, make_pod

POD = make_pod("main")
MAIN = POD.spec.containers[0]
UID = PodUID(POD.metadata.uid)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def up_to(longest: timedelta) -> CrashBackoffLimits:
    return choose_crash_backoff(is_reduced=False, configured=longest)


def crash(backoff: CrashBackoff, at: float, *, container=MAIN, resources=NOTHING) -> timedelta | None:
    """It ended just now: how long does it wait?"""
    return backoff.wait_after(POD, container, resources, NOW + seconds(at), now=NOW + seconds(at))


def test_the_first_restart_is_free_and_then_it_doubles():
    backoff = CrashBackoff(limits=up_to(seconds(300)))
    assert crash(backoff, 0) is None
    assert crash(backoff, 1) == seconds(10)
    assert backoff.wait_after(POD, MAIN, NOTHING, NOW + seconds(1), now=NOW + seconds(11)) is None
    assert crash(backoff, 12) == seconds(20)


def test_another_image_is_another_container():
    backoff = CrashBackoff(limits=up_to(seconds(300)))
    assert crash(backoff, 0) is None
    assert crash(backoff, 1, container=replace(MAIN, image="other")) is None


def test_so_is_one_that_was_given_other_resources():
    backoff = CrashBackoff(limits=up_to(seconds(300)))
    assert crash(backoff, 0) is None
    more = ResourceRequirements(requests={"cpu": Quantity.parse("1")})
    assert crash(backoff, 1, resources=more) is None


def test_the_next_life_waits_on():
    earlier = CrashBackoff(limits=up_to(seconds(300)))
    crash(earlier, 0)
    [known] = earlier.all()
    assert known == CrashDelay(
        uid=UID, container="main", image=MAIN.image, resources=known.resources, delay=seconds(10), counted_at=NOW
    )
    assert crash(CrashBackoff(limits=up_to(seconds(300)), restored=earlier.all()), 5) == seconds(10)


def test_a_configured_limit_can_be_kept():
    backoff = CrashBackoff(limits=up_to(Duration.parse("1s")))
    crash(backoff, 0)
    memory = SavedState(delays=backoff.all())
    assert SavedStateFormat().decode(SavedStateFormat().encode(memory)) == memory


def test_a_shorter_limit_holds_for_what_was_restored():
    earlier = CrashBackoff(limits=up_to(seconds(300)))
    crash(earlier, 0)
    assert crash(CrashBackoff(limits=up_to(seconds(2)), restored=earlier.all()), 1) == seconds(2)


async def test_subscribers_are_notified_of_what_is_to_be_kept():
    backoff = CrashBackoff(limits=up_to(seconds(300)))
    with backoff.changes() as changes:
        crash(backoff, 0)
        assert changes.drain() == [UID]
        crash(backoff, 1)
        assert changes.drain() == []
        backoff.forget(UID)
        assert changes.drain() == [UID]
    assert backoff.all() == ()


def test_the_pods_that_wait_are_known():
    backoff = CrashBackoff(limits=up_to(seconds(300)))
    assert backoff.pods() == set()
    crash(backoff, 0)
    crash(backoff, 1, container=replace(MAIN, image="other"))
    assert backoff.pods() == {UID}
    backoff.forget(UID)
    assert backoff.pods() == set()


@pytest.mark.parametrize(
    ("is_reduced", "configured", "first", "longest"),
    [
        pytest.param(False, None, 10, 300, id="the defaults"),
        pytest.param(True, None, 1, 60, id="reduced, where no longest delay can be configured"),
        pytest.param(True, 300, 1, 300, id="reduced: what is configured goes before the shorter maximum"),
        pytest.param(True, 10, 1, 10, id="reduced, with a shorter maximum"),
        pytest.param(True, 2, 1, 2, id="reduced, with a very short maximum"),
        pytest.param(False, 2, 2, 2, id="the first delay is not longer than the longest"),
        pytest.param(False, 11, 10, 11, id="a maximum just above the first delay"),
        pytest.param(False, 300, 10, 300, id="the default, written out"),
    ],
)
def test_the_first_and_the_longest_delay(is_reduced, configured, first, longest):
    chosen = choose_crash_backoff(is_reduced=is_reduced, configured=None if configured is None else seconds(configured))
    assert chosen == CrashBackoffLimits(seconds(first), seconds(longest))


def test_reduced_delays_begin_with_a_second_and_end_with_a_minute():
    backoff = CrashBackoff(limits=choose_crash_backoff(is_reduced=True, configured=None))
    assert crash(backoff, 0) is None
    waits = []
    at = 0.0
    for _ in range(8):
        delay = crash(backoff, at)
        assert delay is not None
        waits.append(delay.total_seconds())
        at += delay.total_seconds()
        assert backoff.wait_after(POD, MAIN, NOTHING, NOW + seconds(at) - delay, now=NOW + seconds(at)) is None
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
