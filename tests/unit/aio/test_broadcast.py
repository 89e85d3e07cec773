"""One sender, many listeners."""

import asyncio

import pytest

from klet.aio.broadcast import Broadcast, until_any


def test_every_listener_gets_every_item_in_order():
    source = Broadcast[int]()
    with source.subscribe() as one, source.subscribe() as two:
        source.send(1)
        source.send(2)
        assert one.drain() == [1, 2]
        assert two.drain() == [1, 2]
        assert one.drain() == []


def test_a_listener_hears_nothing_from_before_it_came_or_after_it_left():
    source = Broadcast[int]()
    source.send(0)
    with source.subscribe() as listener:
        source.send(1)
    source.send(2)
    listener.close()
    assert listener.drain() == [1]


def test_a_slow_listener_loses_the_oldest_and_is_told_so():
    source = Broadcast[int]()
    with source.subscribe(limit=2) as slow, source.subscribe() as other:
        source.send(1)
        source.send(2)
        assert not slow.lagged
        source.send(3)
        assert slow.lagged
        assert slow.drain() == [2, 3]
        assert not other.lagged


def test_a_listener_may_leave_while_an_item_is_sent():
    source = Broadcast[int]()
    first = source.subscribe()
    second = source.subscribe()
    first.close()
    source.send(1)
    assert second.drain() == [1]


async def test_get_waits_for_the_next_item():
    source = Broadcast[int]()
    with source.subscribe() as listener:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(listener.get())
            await asyncio.sleep(0)
            assert not waiting.done()
            source.send(7)
        assert waiting.result() == 7


async def test_get_waits_again_after_a_drain():
    source = Broadcast[int]()
    with source.subscribe() as listener:
        source.send(1)
        listener.drain()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(listener.get())
            await asyncio.sleep(0)
            assert not waiting.done()
            source.send(2)
        assert waiting.result() == 2


async def test_iteration_gives_what_arrived_and_then_what_arrives():
    source = Broadcast[int]()
    seen: list[int] = []

    async def listen() -> None:
        async for item in listener:
            seen.append(item)
            if item == 3:
                return

    with source.subscribe() as listener:
        source.send(1)
        source.send(2)
        async with asyncio.TaskGroup() as group:
            group.create_task(listen())
            await asyncio.sleep(0)
            source.send(3)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("sender", [0, 1, 2])
async def test_waiting_for_any_of_several_ends_with_the_first_item_and_leaves_it(sender):
    sources = [Broadcast[int]() for _ in range(3)]
    subscriptions = [source.subscribe() for source in sources]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(until_any(*subscriptions))
        await asyncio.sleep(0)
        assert not waiting.done()
        sources[sender].send(7)
        sources[sender].send(8)
    assert [subscription.drain() for subscription in subscriptions] == [
        [7, 8] if number == sender else [] for number in range(3)
    ]


async def test_waiting_for_any_of_several_does_not_wait_for_what_is_there():
    source = Broadcast[int]()
    with source.subscribe() as subscription, Broadcast[int]().subscribe() as other:
        source.send(1)
        await until_any(other, subscription)
        assert subscription.drain() == [1]
