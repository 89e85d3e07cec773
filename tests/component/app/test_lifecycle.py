import asyncio

import pytest

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
        await run_parts((Lasting(), Failing(KletError("no socket"))), when_started=lambda: None)


async def test_any_other_error_keeps_its_group_and_trace():
    with pytest.raises(ExceptionGroup):
        await run_parts((Lasting(), Failing(ValueError("a bug"))), when_started=lambda: None)
