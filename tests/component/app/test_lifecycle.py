import asyncio
import os
import signal

import pytest

from klet.aio.stop_request import StopRequest
from klet.app.run import run_parts
from klet.errors import KletError


class Failing:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self) -> None:
        raise self._error


class Lasting:
    async def run(self) -> None:
        await asyncio.Event().wait()


async def test_an_error_raised_on_purpose_ends_the_agent_as_itself():
    with pytest.raises(KletError, match="no socket"):
        await run_parts((Lasting(), Failing(KletError("no socket"))), stop=StopRequest(), when_started=lambda: None)


async def test_any_other_error_keeps_its_group_and_trace():
    with pytest.raises(ExceptionGroup):
        await run_parts((Lasting(), Failing(ValueError("a bug"))), stop=StopRequest(), when_started=lambda: None)


async def test_the_agent_ends_in_good_order_when_another_wants_its_place():
    stop = StopRequest()
    await run_parts((Lasting(),), stop=stop, when_started=stop.ask)


async def test_what_is_opened_is_called_off_once_by_sigterm():
    stop, ends = StopRequest(), []

    async def open_for_long():
        try:
            with stop.during_opening():
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()
        finally:
            stop.ask()  # asked again: what is put in order now is not disturbed
            await asyncio.sleep(0)
            ends.append("in order")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(open_for_long())
    assert task.cancelled()
    assert ends == ["in order"]


async def test_a_stop_during_the_opening_that_came_too_late_ends_the_parts():
    stop = StopRequest()
    with stop.during_opening():
        pass
    stop.ask()
    await run_parts((Lasting(),), stop=stop, when_started=lambda: None)
