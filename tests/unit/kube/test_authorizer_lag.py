import asyncio
from datetime import timedelta

import pytest

from klet.api.meta import Status
from klet.kube.authorizer_lag import AUTHORIZER_LAG, once_allowed
from klet.kube.errors import Forbidden, NotFound
from klet.testing.clock import ManualClock


def status(message):
    return Status(message=message)


class Server:
    """Refuses a number of requests, and answers the next one."""

    def __init__(self, refusals, error=None):
        self.refusals = refusals
        self.error = error or Forbidden(status("no relationship found"))
        self.asked = 0

    async def answer(self):
        self.asked += 1
        if self.asked <= self.refusals:
            raise self.error
        return "yes"


async def ask(server):
    clock = ManualClock()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        asked = group.create_task(once_allowed(server.answer, clock))
        await clock.run(timedelta(seconds=2))
    return asked.result()


@pytest.mark.parametrize("refusals", [0, 1, len(AUTHORIZER_LAG)])
async def test_a_request_that_is_refused_for_a_moment_is_repeated(refusals):
    server = Server(refusals)
    assert await ask(server) == "yes"
    assert server.asked == refusals + 1


@pytest.mark.parametrize(
    ("refusals", "error", "tries"),
    [
        pytest.param(99, Forbidden(status("not yours")), len(AUTHORIZER_LAG) + 1, id="it is not repeated endlessly"),
        pytest.param(99, NotFound(status("gone")), 1, id="any other error is the answer"),
    ],
)
async def test_a_refusal_that_stays_is_the_answer(refusals, error, tries):
    server = Server(refusals, error)
    with pytest.raises(ExceptionGroup) as found:
        await ask(server)
    assert found.value.exceptions == (error,)
    assert server.asked == tries
