import asyncio
import random
from datetime import timedelta

import pytest

from klet.events.correlator import LONGEST_MESSAGE
from klet.events.recorder import (
    PAUSE,
    QUEUE,
    TRIES,
    EventGone,
    EventingRecorder,
    EventRefused,
    EventsUnreachable,
    EventUnneeded,
    EventWriter,
)
from klet.journal.memory import MemoryJournal
from klet.kube.throttle import throttle_for
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason, read_reason
from klet.testing.clock import START, ManualClock

STEP = timedelta(milliseconds=100)


def started(number):
    return Finding(
        subject=FindingSubject(name="p", uid="u"), decider="test", decision=Reason.STARTED, message=str(number)
    )


async def test_of_too_many_events_the_newest_are_written(caplog):
    clock = ManualClock()
    journal = MemoryJournal(clock=clock)
    recorder = EventingRecorder(inner=journal, clock=clock)
    for number in range(QUEUE + 2):
        recorder.record(started(number))
    recorder.record(Finding(subject=FindingSubject(name="p"), decider="test", decision=Reason.POD_ADDED))
    reported = [(await recorder.next())[0].message for _ in range(QUEUE)]
    assert reported == [str(number) for number in range(2, QUEUE + 2)]
    assert caplog.messages == []
    assert (recorder.take_dropped(), recorder.take_dropped()) == (2, 0)
    assert len(journal.all()) == QUEUE + 3


async def test_a_long_message_is_cut_before_it_waits():
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    recorder.record(started("é" * 1_000_000))
    recorder.record(started("short"))
    messages = [(await recorder.next())[0].message for _ in range(2)]
    assert messages == ["é" * ((LONGEST_MESSAGE - 3) // 2) + "…", "short"]
    assert len(messages[0].encode()) <= LONGEST_MESSAGE


class WrittenEvents:
    """Takes every Event, and dates it."""

    def __init__(self, clock):
        self.clock = clock
        self.at = []

    async def create(self, _event):
        self.at.append(self.clock.now() - START)

    async def patch_count(self, _event):
        raise AssertionError("every Event here is of a pod of its own")


class ThrottledEvents(WrittenEvents):
    """Takes every Event, as fast as the client's limit allows."""

    def __init__(self, clock):
        super().__init__(clock)
        self.throttle = throttle_for(50, 100, clock)

    async def create(self, event):
        await self.throttle.wait()
        await super().create(event)


class KeptEvents:
    """Takes every Event."""

    def __init__(self):
        self.events = []

    async def create(self, event):
        self.events.append(event)

    async def patch_count(self, _event):
        raise AssertionError("every Event here is of another reason")


class NoPods:
    def get(self, _uid):
        return None


def build_writer(recorder, api, clock):
    return EventWriter(
        findings=recorder,
        pods=NoPods(),
        api=api,
        node_name="n",
        clock=clock,
        randomness=random.Random(1),
    )


async def test_an_event_is_written_at_once_however_many_pods_start():
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = WrittenEvents(clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(build_writer(recorder, api, clock).run())
        for number in range(300):
            recorder.record(of_pod(number))
            if number % 10 == 0:
                await clock.run(timedelta(milliseconds=100))
        await clock.run(timedelta(0))
        task.cancel()
    assert len(api.at) == 300
    assert all(at - number // 10 * timedelta(milliseconds=100) <= STEP for number, at in enumerate(api.at))


async def test_the_rate_of_events_is_the_clients_limit(caplog):
    """100 at once and 50 a second, as eventBurst and eventRecordQPS are by default; none is dropped."""
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = ThrottledEvents(clock)
    for number in range(350):
        recorder.record(of_pod(number))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(build_writer(recorder, api, clock).run())
        await clock.run(timedelta(0))
        assert len(api.at) == 100
        await clock.run(timedelta(seconds=6))
        task.cancel()
    assert (len(api.at), recorder.take_dropped()) == (350, 0)
    assert api.at[-1] <= timedelta(seconds=5.1)
    assert caplog.messages == []


class AwayEvents(WrittenEvents):
    """Takes none for a while."""

    is_away = True

    async def create(self, event):
        if self.is_away:
            raise EventsUnreachable("refused")
        return await super().create(event)


async def test_lost_events_are_reported_once_when_events_can_be_written_again(caplog):
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = AwayEvents(clock)
    writer = build_writer(recorder, api, clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        for number in range(2):
            recorder.record(of_pod(number))
        await clock.run(TRIES * PAUSE * 2)
        assert caplog.messages == []
        api.is_away = False
        for number in range(2, 4):
            recorder.record(of_pod(number))
        await clock.run(PAUSE)
        task.cancel()
    (line,) = caplog.records
    assert (line.message, line.count) == ("Events were not published: the API server took none", 2)


def of_pod(number):
    return Finding(subject=FindingSubject(name=f"p{number}", uid=f"u{number}"), decider="test", decision=Reason.STARTED)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
async def test_a_reason_that_is_an_event_reaches_users_with_its_word_type_and_message(reason):
    clock, api = ManualClock(), KeptEvents()
    journal = MemoryJournal(clock=clock)
    recorder = EventingRecorder(inner=journal, clock=clock)
    subject = FindingSubject(namespace="default", name="p", uid="u")
    recorder.record(Finding(subject=subject, decider="test", decision=reason, message="why"))
    assert [cause.finding.decision for cause in journal.all()] == [reason]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(build_writer(recorder, api, clock).run())
        await clock.run(timedelta(0))
        task.cancel()
    reported = [(event.reason, event.type, event.message) for event in api.events]
    assert reported == ([] if reason.event_type is None else [(str(reason), str(reason.event_type), "why")])


async def test_a_word_of_another_version_is_no_event():
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    recorder.record(Finding(subject=FindingSubject(name="p"), decider="test", decision=read_reason("Teleported")))
    assert recorder.waiting == 0


class NoNamespace:
    """Answers as an API server does whose namespace has been deleted."""

    def __init__(self):
        self.calls = []

    async def create(self, event):
        self.calls.append(("create", event.message))
        raise EventGone("namespaces not found")

    async def patch_count(self, event):
        self.calls.append(("count up", event.message))
        raise EventGone("events not found")


async def test_an_event_of_a_namespace_that_is_gone_is_tried_once(caplog):
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = NoNamespace()
    for message in ("first", "first", "second"):
        recorder.record(started(message))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(build_writer(recorder, api, clock).run())
        await clock.run(timedelta(0))
        task.cancel()
    assert api.calls == [("create", "first"), ("count up", "first"), ("create", "first"), ("create", "second")]
    assert caplog.messages == []


class RefusedEvents:
    """Refuses all."""

    async def create(self, _event):
        raise EventRefused("no right to create events")


async def test_an_event_that_is_refused_for_another_cause_is_warned_of(caplog):
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    recorder.record(started(1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(build_writer(recorder, RefusedEvents(), clock).run())
        await clock.run(timedelta(0))
        task.cancel()
    assert caplog.messages == ["Event refused"]


class HangingEvents(KeptEvents):
    """Does not answer the first request, but has taken it; the same name is refused afterwards."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()

    async def create(self, event):
        if event.metadata.name in {each.metadata.name for each in self.events}:
            raise EventUnneeded("already exists")
        await super().create(event)
        if not self.asked.is_set():
            self.asked.set()
            await asyncio.Event().wait()


async def test_what_waits_when_the_agent_stops_is_written(caplog):
    clock, api = ManualClock(), HangingEvents()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    writer = build_writer(recorder, api, clock)
    for number in range(30):
        recorder.record(of_pod(number))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        await api.asked.wait()
        task.cancel()
    assert writer.waiting == 30
    await writer.drain()
    assert writer.waiting == 0
    assert [event.involved_object.name for event in api.events] == [f"p{number}" for number in range(30)]
    assert caplog.messages == []


async def test_without_an_api_server_the_rest_is_left():
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    writer = build_writer(recorder, AwayEvents(clock), clock)
    for number in range(3):
        recorder.record(of_pod(number))
    await writer.drain()
    assert writer.waiting == 3
