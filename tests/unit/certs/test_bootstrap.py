import asyncio
import random
from datetime import timedelta

from klet.certs.bootstrap import wait_for_server

SECOND = timedelta(seconds=1)


class Server:
    def __init__(self, *, comes_after):
        self.left = comes_after
        self.asked = 0

    async def check(self):
        self.asked += 1
        self.left -= 1
        return "connection refused" if self.left >= 0 else ""


async def test_a_server_that_is_there_is_asked_once(clock):
    server = Server(comes_after=0)
    await wait_for_server(server.check, clock=clock, randomness=random.Random(1))
    assert server.asked == 1


async def test_a_server_that_comes_late_is_waited_for(clock):
    server = Server(comes_after=3)
    began = clock.now()
    waiting = asyncio.ensure_future(wait_for_server(server.check, clock=clock, randomness=random.Random(1)))
    while not waiting.done():
        await clock.run(SECOND)
    assert server.asked == 4
    assert 6 * SECOND <= clock.now() - began <= 9 * SECOND


async def test_after_a_minute_the_wait_is_over(clock, caplog):
    server = Server(comes_after=1000)
    began = clock.now()
    waiting = asyncio.ensure_future(wait_for_server(server.check, clock=clock, randomness=random.Random(1)))
    while not waiting.done():
        await clock.run(SECOND)
    assert 60 * SECOND <= clock.now() - began <= 64 * SECOND
    assert "asking it all the same" in caplog.text
