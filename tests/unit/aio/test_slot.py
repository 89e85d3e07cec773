"""A place for one value, where the newest wins."""

import asyncio

from klet.aio.slot import Slot


def test_an_empty_slot_gives_nothing():
    slot = Slot[str]()
    assert slot.take() is None
    assert slot.peek() is None


def test_the_newest_wins_and_the_replaced_one_comes_back():
    slot = Slot[str]()
    assert slot.put("old") is None
    assert slot.put("new") == "old"
    assert slot.peek() == "new"
    assert slot.take() == "new"
    assert slot.take() is None


async def test_get_waits_and_takes():
    slot = Slot[str]()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(slot.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        slot.put("a")
        slot.put("b")
    assert waiting.result() == "b"
    assert slot.peek() is None


async def test_of_two_waiters_one_gets_the_value_and_the_other_goes_on_waiting():
    slot = Slot[str]()
    async with asyncio.TaskGroup() as group:
        one = group.create_task(slot.get())
        two = group.create_task(slot.get())
        await asyncio.sleep(0)
        slot.put("a")
        await asyncio.wait([one, two], return_when=asyncio.FIRST_COMPLETED)
        assert one.done() != two.done()
        slot.put("b")
    assert {one.result(), two.result()} == {"a", "b"}


async def test_a_value_that_was_put_before_is_there_at_once():
    slot = Slot[str]()
    slot.put("a")
    assert await slot.get() == "a"
