"""One sender, many listeners."""

import asyncio

import pytest

from klet.aio.broadcast import Broadcast, Lagged, Subscription, until_any


def test_every_listener_gets_every_item_in_order():
    source = Broadcast[int]()
    with source.subscribe() as one, source.subscribe() as two:
        source.send(1)
        source.send(2)
        assert one.drain() == [1, 2]
        assert two.drain() == [1, 2]
        assert one.drain() == []


def test_a_subscriber_gets_nothing_from_before_it_subscribed_or_after_it_unsubscribed():
    source = Broadcast[int]()
    source.send(0)
    with source.subscribe() as listener:
        source.send(1)
    source.send(2)
    listener.close()
    assert listener.drain() == [1]


async def received(subscription: Subscription[int], number: int) -> list[int | None]:
    """The next so many, with None for a Lagged."""
    items = [await subscription.get() for _ in range(number)]
    return [None if isinstance(item, Lagged) else item for item in items]


async def test_a_slow_consumer_loses_the_oldest_and_gets_one_lagged_before_the_rest():
    source = Broadcast[int]()
    with source.subscribe(limit=2) as slow, source.subscribe() as other:
        for item in (1, 2, 3, 4):
            source.send(item)
        assert await received(slow, 3) == [None, 3, 4]
        assert await received(other, 4) == [1, 2, 3, 4]


async def test_a_full_subscription_that_lost_nothing_has_not_lagged():
    source = Broadcast[int]()
    with source.subscribe(limit=2) as full:
        source.send(1)
        source.send(2)
        assert await received(full, 2) == [1, 2]


async def test_what_is_dropped_after_a_lagged_makes_another_one():
    source = Broadcast[int]()
    with source.subscribe(limit=1) as slow:
        source.send(1)
        source.send(2)
        assert await received(slow, 1) == [None]
        source.send(3)
        assert await received(slow, 2) == [None, 3]


async def test_iteration_gives_a_lagged_too():
    source = Broadcast[int]()
    with source.subscribe(limit=1) as slow:
        source.send(1)
        source.send(2)
        seen = []
        async for item in slow:
            seen.append(item)
            if item == 2:
                break
    assert isinstance(seen[0], Lagged)
    assert seen[1:] == [2]


async def test_a_drain_and_the_items_alone_leave_the_lagged_out():
    source = Broadcast[int]()
    with source.subscribe(limit=1) as slow:
        source.send(1)
        source.send(2)
        assert slow.drain() == [2]
        source.send(3)
        assert await received(slow, 1) == [3]
        source.send(4)
        source.send(5)
        assert await slow.next_item() == 5
        source.send(6)
        source.send(7)
        assert await anext(slow.items()) == 7


async def test_a_cancelled_get_keeps_the_lagged_for_the_next():
    source = Broadcast[int]()
    with source.subscribe(limit=1) as slow:
        waiting = asyncio.ensure_future(slow.get())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        source.send(1)
        source.send(2)
        assert await received(slow, 2) == [None, 2]


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
