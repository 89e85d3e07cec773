"""A copy that follows the API server through everything that can happen to a watch."""

import asyncio
import random
from contextlib import aclosing
from datetime import timedelta

import pytest

from klet.api.config import ConfigMap
from klet.api.kinds import kind_of
from klet.embedded import refusals
from klet.embedded.faults import Cut, DelayAnswer, FallSilent, RefuseRequest
from klet.kube.authorizer_lag import AUTHORIZER_LAG
from klet.kube.informer import FIRST_DELAY, Informer, InformerSettings, ObjectKey
from klet.kube.watch import Watcher, WatchPatience, WatchScope
from klet.testing.clock import FastClock

A = ObjectKey("default", "a")
A_MOMENT = timedelta(milliseconds=300)


async def test_it_begins_with_everything_there_is(cluster):
    await cluster.put("a", x="1")
    informer = cluster.informer()
    assert not informer.is_synced
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        task.cancel()
    assert informer.get("a", "default").data == {"x": "1"}


async def test_changes_arrive(cluster, following):
    with following.changes() as changes:
        await cluster.put("a", x="1")
        assert await changes.get() == A
        await cluster.client.patch(ConfigMap, "a", "default", patch={"data": {"x": "2"}})
        assert await changes.get() == A
        assert following.get("a", "default").data == {"x": "2"}
        await cluster.client.delete(ConfigMap, "a", "default")
        assert await changes.get() == A
    assert following.all() == ()


async def test_a_cut_watch_goes_on_where_it_was(cluster, following):
    with following.changes() as changes:
        await cluster.put("a")
        await changes.get()
        await cluster.transport.reconnect()
        await cluster.put("b")
        assert await changes.get() == ObjectKey("default", "b")
        assert changes.drain() == []


async def test_a_version_that_is_too_old_means_a_new_list(cluster, following):
    with following.changes() as changes:
        await cluster.put("a")
        await changes.get()
        cluster.api.faults.plan(Cut(), applies=lambda ask: ask.is_watch)
        await cluster.transport.reconnect()
        await cluster.client.delete(ConfigMap, "a", "default")
        await cluster.put("b")
        cluster.api.store.forget_history()
        assert {await changes.get(), await changes.get()} == {A, ObjectKey("default", "b")}
    assert [each.metadata.name for each in following.all()] == ["b"]


NO_FEATURE = (
    "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is"
    " enabled"
)
OLD_STORAGE = (
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
)


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(refusals.bad_options(NO_FEATURE), id="the server refuses the parameter"),
        pytest.param(refusals.internal(OLD_STORAGE), id="its storage is too old"),
    ],
)
async def test_a_server_without_streaming_lists_is_listed(cluster, refusal):
    await cluster.put("a")
    cluster.api.faults.plan(RefuseRequest(refusal), applies=lambda ask: ask.is_watch)
    informer = cluster.informer()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        with informer.changes() as changes:
            await cluster.put("b")
            assert await changes.get() == ObjectKey("default", "b")
        task.cancel()
    assert len(informer.all()) == 2


async def test_what_one_informer_was_refused_no_other_one_asks_for(cluster):
    cluster.api.faults.plan(RefuseRequest(refusals.internal(OLD_STORAGE)), applies=lambda ask: ask.is_watch)
    asked = []
    async with asyncio.TaskGroup() as group:
        first = cluster.informer()
        tasks = [group.create_task(first.run())]
        await first.until_synced()
        await cluster.put("a")
        with first.changes() as changes:
            while not first.all():
                await changes.get()
        cluster.api.faults.plan(Cut(), applies=lambda ask: asked.append(ask.is_watch) or False)
        second = cluster.informer()
        tasks.append(group.create_task(second.run()))
        await second.until_synced()
        for task in tasks:
            task.cancel()
    assert asked[0] is False
    assert [each.metadata.name for each in second.all()] == ["a"]


class RecordingClock(FastClock):
    """Remembers how long it was asked to sleep."""

    def __init__(self):
        super().__init__()
        self.slept = []

    async def sleep(self, duration):
        self.slept.append(duration)
        await super().sleep(duration)


@pytest.mark.parametrize(
    ("refusals_before", "is_early"),
    [
        pytest.param(1, True, id="at once while the authorizer may not know the pod yet"),
        pytest.param(len(AUTHORIZER_LAG), True, id="several times"),
        pytest.param(len(AUTHORIZER_LAG) + 1, False, id="as after any other error if it goes on"),
    ],
)
async def test_a_forbidden_first_list_is_retried(cluster, refusals_before, is_early):
    clock = RecordingClock()
    settings = InformerSettings(cluster.client, cluster.watcher, clock, random.Random(1))
    informer = Informer(struct=ConfigMap, scope=WatchScope("default"), settings=settings)
    await cluster.put("a")
    refusal = RefuseRequest(refusals.forbidden(kind_of(ConfigMap), "a", "no relationship found"))
    cluster.api.faults.plan(refusal, applies=lambda ask: ask.is_watch, times=refusals_before)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        task.cancel()
    assert len(clock.slept) == refusals_before
    assert (max(clock.slept) < FIRST_DELAY) is is_early


@pytest.mark.parametrize("fault", [RefuseRequest(refusals.internal("boom")), Cut()], ids=["an error", "a cut"])
async def test_what_was_there_stays_readable_while_the_server_is_away(cluster, following, fault):
    with following.changes() as changes:
        await cluster.put("a")
        await changes.get()
        cluster.api.faults.plan(fault, times=1_000)
        await cluster.transport.reconnect()
        assert following.get("a", "default") is not None
        cluster.api.faults.clear()
        await cluster.put("b")
        assert await changes.get() == ObjectKey("default", "b")


@pytest.mark.parametrize(
    ("fault", "patience"),
    [
        pytest.param(
            FallSilent(after_events=1),
            WatchPatience(shortest_life=1, longest_life=1, silence=A_MOMENT, overtime=A_MOMENT),
            id="after some events, once the server should have ended it",
        ),
        pytest.param(DelayAnswer(timedelta(hours=1)), WatchPatience(first_answer=A_MOMENT), id="before any answer"),
    ],
)
async def test_a_watch_that_ends_without_notice_is_noticed(cluster, fault, patience):
    await cluster.put("a")
    watcher = Watcher(transport=cluster.transport, randomness=random.Random(1), patience=patience)
    settings = InformerSettings(cluster.client, watcher, FastClock(), random.Random(1))
    informer = Informer(struct=ConfigMap, scope=WatchScope("default"), settings=settings)
    cluster.api.faults.plan(fault, applies=lambda ask: ask.is_watch)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        with informer.changes() as changes:
            await cluster.put("b")
            while informer.get("b", "default") is None:
                await changes.get()
        task.cancel()


class PatientClock(FastClock):
    """Short delays pass at once, long ones never."""

    async def sleep(self, duration: timedelta) -> None:
        if duration > 2 * FIRST_DELAY:
            await asyncio.Event().wait()
        await super().sleep(duration)

    async def wait(self, what, *, at_most: timedelta) -> None:
        assert at_most > timedelta(0)
        await what


async def test_an_answer_to_somebody_else_ends_the_wait_for_a_server_that_was_away(cluster):
    settings = InformerSettings(cluster.client, cluster.watcher, PatientClock(), random.Random(1))
    informer = Informer(struct=ConfigMap, scope=WatchScope("default"), settings=settings)
    cluster.api.faults.plan(Cut(), times=1_000)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        with cluster.client.reach.troubles() as troubles:
            task = group.create_task(informer.run())
            for _ in range(2):  # so that the next delay is a long one
                assert await troubles.get()
        cluster.api.faults.clear()
        await cluster.put("a")
        await informer.until_synced()
        task.cancel()
    assert [each.metadata.name for each in informer.all()] == ["a"]


class EndingWatcher:
    """Its first watches end at once, as those of a server that dies may; `is_over` says when all of them have."""

    streams_lists = True

    def __init__(self, inner, ends):
        self.inner = inner
        self.ends = ends
        self.is_over = asyncio.Event()

    async def watch(self, *scope, **options):
        if self.ends:
            self.ends -= 1
            if not self.ends:
                self.is_over.set()
            return
        async with aclosing(self.inner.watch(*scope, **options)) as events:
            async for event in events:
                yield event


async def test_a_server_that_was_away_and_is_back_ends_the_wait_after_a_watch_that_just_ended(cluster):
    watcher = EndingWatcher(cluster.watcher, ends=2)
    settings = InformerSettings(cluster.client, watcher, PatientClock(), random.Random(1))
    informer = Informer(struct=ConfigMap, scope=WatchScope("default"), settings=settings)
    await cluster.put("a")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await watcher.is_over.wait()
        reach = cluster.client.reach
        while not informer.is_synced:
            reach.failed("nobody is there")
            reach.answered(200)
            await asyncio.sleep(0)
        task.cancel()
    assert [each.metadata.name for each in informer.all()] == ["a"]


async def test_what_a_server_has_forgotten_is_listed_soon_however_often_it_was_away(cluster):
    settings = InformerSettings(cluster.client, cluster.watcher, PatientClock(), random.Random(1))
    informer = Informer(struct=ConfigMap, scope=WatchScope("default"), settings=settings)
    await cluster.put("a")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        for fault in (Cut(), Cut(), RefuseRequest(refusals.expired("too old resource version"))):
            cluster.api.faults.plan(fault, applies=lambda ask: ask.is_watch)
        await cluster.transport.reconnect()
        await cluster.put("b")
        while informer.get("b", "default") is None:
            cluster.client.reach.answered(200)  # as a heartbeat
            await asyncio.sleep(0)
        task.cancel()
