import asyncio
import random
from datetime import timedelta

import pytest

from klet.events.correlator import LONGEST_MESSAGE
from klet.events.recorder import (
    AT_ONCE,
    FLOOD,
    PATIENCE,
    PAUSE,
    QUEUE,
    TRIES,
    EventGone,
    EventingRecorder,
    EventsUnreachable,
    EventWriter,
)
from klet.journal.memory import MemoryJournal
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason, read_reason
from klet.testing.clock import START, ManualClock
from klet.testing.starts import NoStarts


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

    async def create(self, event):
        self.at.append(self.clock.now() - START)
        return event

    async def patch_count(self, _event):
        raise AssertionError("every Event here is of a pod of its own")


class KeptEvents:
    """Takes every Event."""

    def __init__(self):
        self.events = []

    async def create(self, event):
        self.events.append(event)
        return event

    async def patch_count(self, _event):
        raise AssertionError("every Event here is of another reason")


class NoPods:
    def get(self, _uid):
        return None


def build_writer(recorder, api, clock, starts=None):
    return EventWriter(
        findings=recorder,
        pods=NoPods(),
        api=api,
        starts=starts or NoStarts(),
        node_name="n",
        clock=clock,
        randomness=random.Random(1),
    )


class ManyStarts:
    """Pods start, until none does."""

    def __init__(self):
        self.over = asyncio.Event()

    @property
    def is_busy(self):
        return not self.over.is_set()

    async def until_idle(self):
        await self.over.wait()


@pytest.mark.parametrize(
    ("over_after", "written_at"),
    [
        pytest.param(timedelta(seconds=3), timedelta(seconds=3), id="as soon as all have started"),
        pytest.param(timedelta(minutes=1), PATIENCE, id="in the end all the same"),
    ],
)
async def test_events_are_written_after_pods_that_start(over_after, written_at):
    clock, starts = ManualClock(), ManyStarts()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = WrittenEvents(clock)
    writer = build_writer(recorder, api, clock, starts)
    for number in range(2):
        recorder.record(of_pod(number))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        await clock.run(over_after)
        starts.over.set()
        await clock.run(timedelta(0))
        task.cancel()
    assert api.at == [written_at, written_at]


async def test_while_pods_start_a_warning_is_reported_at_once_with_what_led_to_it():
    clock, starts = ManualClock(), ManyStarts()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = WrittenEvents(clock)
    writer = build_writer(recorder, api, clock, starts)
    recorder.record(of_pod(0))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        await clock.run(timedelta(seconds=1))
        assert api.at == []
        recorder.record(
            Finding(subject=FindingSubject(name="p", uid="u"), decider="test", decision=Reason.FAILED, message="m")
        )
        await clock.run(timedelta(0))
        recorder.record(of_pod(1))
        await clock.run(timedelta(seconds=1))
        task.cancel()
    assert api.at == [timedelta(seconds=1)] * 2


async def test_pods_that_start_do_not_have_events_dropped():
    clock, starts = ManualClock(), ManyStarts()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = WrittenEvents(clock)
    writer = build_writer(recorder, api, clock, starts)
    count = QUEUE + QUEUE // 4
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        for number in range(count):
            recorder.record(of_pod(number))
            if number % 50 == 0:
                await clock.run(PATIENCE * 2 / 3 * 50 / count)
        starts.over.set()
        await clock.run(2 * FLOOD)
        task.cancel()
    assert (len(api.at), recorder.take_dropped()) == (count, 0)


@pytest.mark.parametrize(
    ("count", "at_once", "latest"),
    [
        pytest.param(AT_ONCE, AT_ONCE, timedelta(0), id="a few are reported at once"),
        pytest.param(90, 1, FLOOD, id="of many the first at once"),
        pytest.param(QUEUE, 1, FLOOD, id="as many as may wait"),
    ],
)
async def test_a_flood_of_events_is_written_at_a_limited_rate(count, at_once, latest):
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = WrittenEvents(clock)
    writer = build_writer(recorder, api, clock)
    for number in range(count):
        subject = FindingSubject(name=f"p-{number}", uid=f"u-{number}")
        recorder.record(Finding(subject=subject, decider="test", decision=Reason.STARTED, message="m"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        await clock.run(timedelta(0))
        assert len(api.at) == at_once
        await clock.run(2 * FLOOD)
        task.cancel()
    assert len(api.at) == count
    assert max(api.at) <= latest


async def test_a_warning_in_a_flood_of_events_is_reported_at_once_with_what_led_to_it():
    clock = ManualClock()
    recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
    api = WrittenEvents(clock)
    writer = build_writer(recorder, api, clock)
    for number in range(50):
        recorder.record(of_pod(number))
    recorder.record(
        Finding(subject=FindingSubject(name="p", uid="u"), decider="test", decision=Reason.FAILED, message="m")
    )
    for number in range(50, 90):
        recorder.record(of_pod(number))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        await clock.run(timedelta(0))
        assert len(api.at) == 51
        await clock.run(FLOOD)
        task.cancel()
    assert len(api.at) == 91


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
    assert caplog.messages == ["Event refused"] * 3
