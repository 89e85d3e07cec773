"""Waiting for the first of several things, leaving no task behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of the waits has ended; the others are cancelled and awaited. Their results are dropped."""
    async with asyncio.TaskGroup() as group:
        one_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(_task: asyncio.Task[object]) -> None:
            if not one_ended.done():
                one_ended.set_result(None)

        tasks = [group.create_task(wait) for wait in waits]
        for task in tasks:
            task.add_done_callback(end)
        await one_ended
        for task in tasks:
            task.cancel()
