"""The board of what pods have been given."""

from msgspec.structs import replace

from klet.allocation.book import AllocationBook, actual_resources
from klet.model.allocation import NOTHING, Actuated, PodAllocation, desired_allocation
from klet.model.pods import PodUID
from klet.model.runtime import GivenResources, RuntimeContainerState
from klet.testing.builders import make_container, make_pod, make_record, make_status, with_resources

UID = PodUID("uid-1")
SMALL = with_resources(make_container("main"), requests={"cpu": "100m"})
LARGE = with_resources(make_container("main"), requests={"cpu": "1"})
POD, CHANGED = make_pod(SMALL), make_pod(LARGE)
GIVEN = desired_allocation(POD)


def seen(*given: GivenResources | None):
    """A container of each age, the newest first."""
    states = [RuntimeContainerState.RUNNING, *[RuntimeContainerState.EXITED] * (len(given) - 1)]
    made = [make_record(POD, "main", state, restarts=9 - age) for age, state in enumerate(states)]
    records = zip(made, given, strict=True)
    return make_status(POD, *(replace(record, resources=each) for record, each in records))


def test_a_pod_that_was_not_admitted_has_what_it_would_be_admitted_with():
    book = AllocationBook()
    assert book.of(CHANGED) == desired_allocation(CHANGED)
    assert book.pods() == frozenset()


def test_what_was_admitted_stays_whatever_the_spec_says():
    book = AllocationBook()
    book.admit(UID, GIVEN)
    assert book.of(CHANGED) is GIVEN
    assert book.pods() == {UID}


def test_pods_are_apart():
    book = AllocationBook()
    book.admit(UID, GIVEN)
    assert book.of(make_pod(LARGE, uid="other")) == desired_allocation(CHANGED)


def test_what_is_handed_on_leaves_what_was_admitted():
    book = AllocationBook()
    book.admit(UID, GIVEN)
    book.record_cgroup(UID, GIVEN)
    book.record_creation(UID, "main", SMALL.resources)
    book.record_creation(UID, "debug", NOTHING)
    book.record_creation(UID, "main", LARGE.resources)
    known = book.view(CHANGED, make_status(POD))
    assert known.admitted is GIVEN
    assert known.actuated == Actuated(containers={"main": LARGE.resources, "debug": NOTHING}, cgroup=GIVEN)
    assert known.actual == {}


def test_another_admission_leaves_what_was_handed_on():
    book = AllocationBook()
    book.admit(UID, GIVEN)
    book.record_creation(UID, "main", SMALL.resources)
    book.admit(UID, desired_allocation(CHANGED))
    known = book.view(POD, make_status(POD))
    assert (known.admitted.of("main"), known.actuated.containers["main"]) == (LARGE.resources, SMALL.resources)


def test_a_view_does_not_change_later():
    book = AllocationBook()
    before = book.view(POD, make_status(POD))
    book.record_creation(UID, "main", SMALL.resources)
    assert before.actuated == Actuated()


def test_a_pod_that_is_gone_is_forgotten():
    book = AllocationBook()
    book.admit(UID, PodAllocation())
    book.record_creation(UID, "main", SMALL.resources)
    book.forget(UID)
    book.forget(UID)
    assert book.pods() == frozenset()
    assert book.view(POD, make_status(POD)).actuated == Actuated()


def test_what_the_runtime_says_of_the_newest_container_is_actual():
    new, old = GivenResources(cpu_request=2), GivenResources(cpu_request=1)
    assert actual_resources(seen(new, old)) == {"main": new}
    assert actual_resources(seen(None, old)) == {}
    assert AllocationBook().view(POD, seen(new)).actual == {"main": new}
