"""Counting, combining and dropping of Events."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from klet.api.event import Event, EventSource
from klet.api.references import ObjectReference
from klet.api.times import Time
from klet.events.correlator import (
    BURST,
    COMBINED,
    LONGEST_MESSAGE,
    REFILL,
    SIMILAR,
    SIMILAR_WITHIN,
    Correlator,
    Count,
    Discard,
    Post,
    Recent,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
POD = ObjectReference(kind="Pod", namespace="default", name="p", uid="u", field_path="spec.containers{a}")
EVENT = Event(
    involved_object=POD,
    reason="Unhealthy",
    message="probe failed",
    source=EventSource(component="kubelet", host="n"),
    count=1,
    type="Warning",
    reporting_component="kubelet",
    reporting_instance="n",
    first_timestamp=Time.of(NOW),
    last_timestamp=Time.of(NOW),
)


def test_the_first_is_posted_and_the_same_again_is_counted():
    correlator = Correlator()
    later = NOW + timedelta(seconds=5)
    assert correlator.decide(EVENT, now=NOW) == Post(EVENT)
    counted = replace(EVENT, count=2, last_timestamp=Time.of(later))
    assert correlator.decide(EVENT, now=later) == Count(counted)
    assert correlator.decide(EVENT, now=later) == Count(replace(counted, count=3))


@pytest.mark.parametrize(
    "other",
    [
        replace(EVENT, message="other"),
        replace(EVENT, reason="Killing"),
        replace(EVENT, type="Normal"),
        replace(EVENT, involved_object=replace(POD, field_path="spec.containers{b}")),
        replace(EVENT, involved_object=replace(POD, uid="other")),
    ],
    ids=["message", "reason", "type", "container", "pod"],
)
def test_what_differs_is_an_event_of_its_own(other):
    correlator = Correlator()
    correlator.decide(EVENT, now=NOW)
    assert correlator.decide(other, now=NOW) == Post(other)


def test_many_messages_of_one_kind_are_combined():
    correlator = Correlator()
    for number in range(SIMILAR - 1):
        assert isinstance(correlator.decide(replace(EVENT, message=f"m{number}"), now=NOW), Post)
    first = correlator.decide(replace(EVENT, message="one more"), now=NOW)
    expected = replace(EVENT, message=f"{COMBINED}one more", reporting_component="", reporting_instance="")
    assert first == Post(expected)
    again = correlator.decide(replace(EVENT, message="and another"), now=NOW)
    assert again == Count(replace(expected, message=f"{COMBINED}and another", count=2))


def test_after_a_quiet_time_messages_are_counted_from_zero():
    correlator = Correlator()
    for number in range(SIMILAR - 1):
        correlator.decide(replace(EVENT, message=f"m{number}"), now=NOW)
    late = replace(EVENT, message="late")
    assert correlator.decide(late, now=NOW + SIMILAR_WITHIN + timedelta(seconds=1)) == Post(late)


def test_a_flood_about_one_object_is_dropped_until_time_has_passed():
    correlator = Correlator()
    for _ in range(BURST):
        assert not isinstance(correlator.decide(EVENT, now=NOW), Discard)
    assert correlator.decide(EVENT, now=NOW) == Discard()
    other = replace(EVENT, involved_object=replace(POD, uid="other"))
    assert correlator.decide(other, now=NOW) == Post(other)
    assert isinstance(correlator.decide(EVENT, now=NOW + REFILL), Count)
    assert correlator.decide(EVENT, now=NOW + REFILL) == Discard()


def test_what_was_used_last_is_kept():
    recent = Recent[str, int](limit=2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)


def test_a_combined_message_is_no_longer_than_any_other():
    correlator = Correlator()
    for number in range(SIMILAR + 1):
        text = f"{number:02}" + "x" * (LONGEST_MESSAGE - 2)
        decided = correlator.decide(replace(EVENT, message=text), now=NOW)
    assert isinstance(decided, Count)
    assert decided.event.message.startswith(COMBINED)
    assert len(decided.event.message.encode()) == LONGEST_MESSAGE
