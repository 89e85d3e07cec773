"""Watches that live as long as pods refer to their object."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.errors import KletError
from klet.model.objects import ObjectKind, ObjectMissing
from klet.objectcache.watched import AT_ONCE, QUEUE_PATIENCE, SYNC_PATIENCE, WatchedObjects, idle_time

MINUTE = timedelta(minutes=1)
KEY = ("ns", "cfg")


class Watching:
    """A store and the followers that it has made, newest last."""

    def __init__(self, clock, hand_follower):
        self.made = []
        self.changed = []
        self.store = WatchedObjects(
            kind=ObjectKind.CONFIG_MAP,
            follow=self._follow,
            on_change=lambda namespace, name: self.changed.append((namespace, name)),
            idle_after=timedelta(minutes=5),
            clock=clock,
        )
        self._clock = clock
        self._make = hand_follower

    def _follow(self, namespace, name):
        self.made.append(self._make(namespace, name))
        return self.made[-1]

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.store.run())
            await self.settle()
            yield self
            task.cancel()

    async def settle(self):
        await self._clock.run(timedelta())


@pytest.fixture
async def watching(clock, hand_follower):
    made = Watching(clock, hand_follower)
    async with made.running():
        yield made


async def test_an_object_that_no_pod_refers_to_cannot_be_read(watching):
    with pytest.raises(KletError, match=r'^object "ns"/"cfg" not registered$'):
        await watching.store.get(*KEY)


async def test_a_watch_begins_with_the_first_reference_and_ends_with_the_last(watching):
    watching.store.add_reference(*KEY, "a")
    watching.store.add_reference(*KEY, "b")
    watching.store.add_reference(*KEY, "b")
    await watching.settle()
    assert [follower.runs for follower in watching.made] == [1]
    watching.store.drop_reference(*KEY, "a")
    await watching.settle()
    assert watching.made[0].runs == 1
    watching.store.drop_reference(*KEY, "b")
    watching.store.drop_reference(*KEY, "b")
    await watching.settle()
    assert watching.made[0].runs == 0
    assert watching.store.watched() == set()


async def test_references_that_came_before_the_start_are_watched(clock, hand_follower, config_map):
    early = Watching(clock, hand_follower)
    early.store.add_reference(*KEY, "a")
    async with early.running():
        await early.settle()
        early.made[0].show(config_map())
        assert await early.store.get(*KEY) == config_map()


async def test_a_reader_waits_for_the_first_look(watching, config_map):
    watching.store.add_reference(*KEY, "a")
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(watching.store.get(*KEY))
        await watching.settle()
        assert not reading.done()
        watching.made[0].show(config_map(x="1"))
    assert reading.result().data == {"x": "1"}


async def test_a_reader_waits_no_longer_than_a_second(watching, clock):
    watching.store.add_reference(*KEY, "a")
    reading = asyncio.gather(watching.store.get(*KEY), return_exceptions=True)
    await clock.run(timedelta(milliseconds=999))
    assert not reading.done()
    await clock.run(timedelta(milliseconds=1))
    assert str((await reading)[0]) == "failed to sync configmap cache: timed out waiting for the condition"


async def test_watches_begin_a_few_at_a_time_in_the_order_of_the_pods(watching, config_map):
    names = [f"cfg-{number}" for number in range(AT_ONCE + 2)]
    for name in names:
        watching.store.add_reference("ns", name, name)
    await watching.settle()
    first, second, *_, waiting, last = watching.made
    assert [follower.runs for follower in watching.made] == [1] * AT_ONCE + [0, 0]
    second.show(config_map(name=names[1]))
    await watching.settle()
    assert (waiting.runs, last.runs) == (1, 0)
    first.show(None)
    await watching.settle()
    assert [follower.runs for follower in watching.made] == [1] * (AT_ONCE + 2), "those that have begun go on"


async def test_watches_that_show_nothing_keep_no_other_one_waiting(watching, clock):
    for number in range(AT_ONCE + 1):
        watching.store.add_reference("ns", f"cfg-{number}", "a")
    await clock.run(SYNC_PATIENCE - timedelta(milliseconds=1))
    assert watching.made[-1].runs == 0
    await clock.run(timedelta(milliseconds=1))
    assert watching.made[-1].runs == 1


async def test_a_watch_that_is_no_longer_needed_leaves_the_queue(watching, clock):
    for number in range(AT_ONCE + 2):
        watching.store.add_reference("ns", f"cfg-{number}", "a")
    await watching.settle()
    watching.store.drop_reference("ns", f"cfg-{AT_ONCE}", "a")
    await clock.run(SYNC_PATIENCE)
    assert [follower.runs for follower in watching.made[-2:]] == [0, 1]


async def test_a_second_of_patience_begins_when_the_api_server_is_asked(watching, clock, config_map):
    for number in range(AT_ONCE + 1):
        watching.store.add_reference("ns", f"cfg-{number}", "a")
    last = f"cfg-{AT_ONCE}"
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(watching.store.get("ns", last))
        await clock.run(SYNC_PATIENCE + timedelta(milliseconds=999))
        assert not reading.done()
        watching.made[-1].show(config_map(name=last, x="1"))
    assert reading.result().data == {"x": "1"}


async def test_a_reader_does_not_wait_for_a_long_queue_to_end(watching, clock):
    for number in range(AT_ONCE * 20):
        watching.store.add_reference("ns", f"cfg-{number}", "a")
    reading = asyncio.gather(watching.store.get("ns", f"cfg-{AT_ONCE * 20 - 1}"), return_exceptions=True)
    await clock.run(QUEUE_PATIENCE + SYNC_PATIENCE - timedelta(milliseconds=1))
    assert not reading.done()
    await clock.run(timedelta(milliseconds=1))
    assert str((await reading)[0]) == "failed to sync configmap cache: timed out waiting for the condition"


async def test_waiters_that_timed_out_get_the_error_of_the_first_check(watching, clock, config_map):
    watching.store.add_reference(*KEY, "a")
    reading = asyncio.gather(watching.store.get(*KEY), return_exceptions=True)
    await clock.run(timedelta(seconds=1))
    await reading
    watching.made[0].show(config_map())
    await watching.settle()
    assert watching.changed == [KEY]


async def test_an_object_that_is_not_there_is_missing(watching):
    watching.store.add_reference(*KEY, "a")
    watching.made[0].show(None)
    with pytest.raises(ObjectMissing, match=r'^configmap "cfg" not found$'):
        await watching.store.get(*KEY)


async def test_changes_are_reported_but_not_what_was_there_at_first(watching, config_map):
    watching.store.add_reference(*KEY, "a")
    await watching.settle()
    watching.made[0].show(config_map("1"))
    await watching.settle()
    assert watching.changed == []
    watching.made[0].show(config_map("2"))
    await watching.settle()
    watching.made[0].show(config_map("2"))
    await watching.settle()
    assert watching.changed == [KEY]
    watching.made[0].show(None)
    await watching.settle()
    assert watching.changed == [KEY, KEY]


async def test_an_immutable_object_is_kept_and_watched_no_longer(watching, clock, config_map):
    watching.store.add_reference(*KEY, "a")
    await watching.settle()
    watching.made[0].show(config_map(immutable=True))
    await watching.settle()
    assert watching.made[0].runs == 0
    await clock.run(timedelta(hours=1))
    assert (await watching.store.get(*KEY)).immutable
    assert len(watching.made) == 1


async def test_what_nobody_reads_is_watched_no_longer_and_again_when_somebody_does(watching, clock, config_map):
    watching.store.add_reference(*KEY, "a")
    await watching.settle()
    watching.made[0].show(config_map("1"))
    await clock.run(timedelta(minutes=5))
    assert watching.made[0].runs == 1
    await clock.run(MINUTE)
    assert watching.made[0].runs == 0
    reading = asyncio.gather(watching.store.get(*KEY))
    await watching.settle()
    watching.made[1].show(config_map("2"))
    assert (await reading)[0] == config_map("2")
    assert watching.changed == [KEY]  # for others who knew the old one


async def test_reading_keeps_a_watch(watching, clock, config_map):
    watching.store.add_reference(*KEY, "a")
    await watching.settle()
    watching.made[0].show(config_map())
    for _ in range(5):
        await clock.run(timedelta(minutes=4))
        await watching.store.get(*KEY)
    assert watching.made[0].runs == 1


async def test_a_watch_that_never_showed_anything_goes_on(watching, clock):
    watching.store.add_reference(*KEY, "a")
    await clock.run(timedelta(hours=1))
    assert watching.made[0].runs == 1


@pytest.mark.parametrize(
    ("sync", "idle"),
    [
        pytest.param(MINUTE, 5 * MINUTE, id="five sync periods"),
        pytest.param(timedelta(seconds=1), MINUTE, id="a minute at least"),
    ],
)
def test_idle_time(sync, idle):
    assert idle_time(sync) == idle
