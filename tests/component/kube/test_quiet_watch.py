"""Watches on which nothing happens: for hours, behind a connection that died without notice, behind a hung server.

The times are those of a real node divided by a thousand or more, so 180 ms stand for three minutes.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from klet.api.config import ConfigMap
from klet.embedded import refusals
from klet.embedded.faults import DelayAnswer, RefuseRequest
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.informer import Informer, InformerSettings
from klet.kube.outages import OutageLogger
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Watcher, WatchPatience, WatchScope
from klet.testing.clock import FastClock

SOON = WatchPatience(silence=timedelta(milliseconds=30), probe_timeout=timedelta(milliseconds=300))
QUIET = WatchPatience(silence=timedelta(milliseconds=30))
"""For an API server that answers: on a busy machine that takes a while."""
PROBES = 120
"""Two hours of silence, with one probe a minute."""


class Asked:
    """Which requests the API server gets; it counts, and applies to none."""

    def __init__(self) -> None:
        self.watches = 0
        self.probes = 0
        self.probed = asyncio.Event()

    def __call__(self, ask) -> bool:
        self.watches += ask.is_watch
        if ask.path == "/version":
            self.probes += 1
            self.probed.set()
        return False


class Gate:
    """A way to the API server that can lose everything without a word, as a network does that drops packets."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()

    def lose_everything(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        async with asyncio.TaskGroup() as group:
            tasks = []

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                there, back = await asyncio.open_connection("127.0.0.1", self._port)
                tasks.append(group.create_task(self._pass_on(reader, back)))
                tasks.append(group.create_task(self._pass_on(there, writer)))

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            yield server.sockets[0].getsockname()[1]
            server.close()
            for task in tasks:
                task.cancel()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        was_cut = False
        try:
            with suppress(ConnectionError):
                while chunk := await reader.read(65536):
                    was_cut = was_cut or not self._open.is_set()
                    if not was_cut:
                        writer.write(chunk)
        finally:
            writer.close()


@asynccontextmanager
async def following(cluster, port, patience) -> AsyncIterator[tuple[Informer[ConfigMap], Transport]]:
    clock, chance, login = FastClock(), random.Random(1), Login(token="secret")
    access = Access(server=f"http://127.0.0.1:{port}", login=login)
    transport = Transport(access=access, credentials=Credentials(login=login, clock=clock))
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=30), clock=clock)
    watcher = Watcher(transport=transport, randomness=chance, patience=patience)
    settings = InformerSettings(client, watcher, clock, chance)
    informer = Informer(struct=ConfigMap, scope=WatchScope("default"), settings=settings)
    outages = OutageLogger(server=access.server, reaches=(transport.reach,), clock=clock)
    await cluster.put("first")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (outages, informer)]
        await informer.until_synced()
        yield informer, transport
        for task in tasks:
            task.cancel()
    await transport.close()


async def until_there(informer, name):
    with informer.changes() as changes:
        while informer.get(name, "default") is None:
            await changes.get()


async def test_hours_of_silence_are_no_outage_and_no_reason_to_connect_again(cluster, caplog):
    caplog.set_level(logging.INFO, logger="klet")
    asked = Asked()
    cluster.api.faults.plan(DelayAnswer(timedelta(0)), applies=asked)
    async with following(cluster, cluster.port, QUIET) as (informer, _):
        while asked.probes < PROBES:
            asked.probed.clear()
            await asked.probed.wait()
        assert asked.watches == 1
        await cluster.put("late")
        await until_there(informer, "late")
        assert asked.watches == 1
    assert caplog.messages == []


async def test_silent_watches_share_one_probe_and_none_is_sent_while_others_are_answered(cluster):
    asked = Asked()
    cluster.api.faults.plan(DelayAnswer(timedelta(0)), applies=asked)
    patience = WatchPatience(silence=timedelta(milliseconds=100))
    async with following(cluster, cluster.port, patience) as (_, transport):
        watcher = Watcher(transport=transport, randomness=random.Random(1), patience=patience)
        client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=30), clock=FastClock())

        async def watch(number: int) -> None:
            async for _ in watcher.watch(ConfigMap, WatchScope(f"empty-{number}"), resource_version="1"):
                pass

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch(number)) for number in range(10)]
            loop = asyncio.get_running_loop()
            silence = patience.silence.total_seconds()
            until, answered, longest = loop.time() + 4 * silence, loop.time(), 0.0
            while loop.time() < until:
                await client.get(ConfigMap, "first", "default")
                longest, answered = max(longest, loop.time() - answered), loop.time()
            # When the machine stood still for so long, there was silence.
            assert asked.probes == 0 or longest > silence / 2
            least = asked.probes + 3
            while asked.probes < least:
                asked.probed.clear()
                await asked.probed.wait()
            assert asked.probes <= least + 3, "of eleven watches and two watchers, not 33"
            for task in tasks:
                task.cancel()


async def test_a_half_open_connection_is_noticed_and_the_watch_goes_on_over_a_new_one(cluster, caplog):
    gate = Gate(cluster.port)
    async with gate.serving() as port, following(cluster, port, SOON) as (informer, transport):
        gate.lose_everything()
        await cluster.put("meanwhile")
        with transport.reach.troubles() as troubles:
            while "/version" not in await troubles.next_item():
                pass
        gate.open()
        await until_there(informer, "meanwhile")
    assert "The API server does not answer; trying again" in caplog.messages


async def test_a_server_that_hangs_is_noticed(cluster, caplog):
    async with following(cluster, cluster.port, SOON) as (informer, transport):
        cluster.api.faults.plan(DelayAnswer(timedelta(hours=1)), times=1000)
        with transport.reach.troubles() as troubles:
            while not await troubles.next_item():
                pass
        cluster.api.faults.clear()
        await cluster.put("after")
        await until_there(informer, "after")
    assert "The API server does not answer; trying again" in caplog.messages


async def test_a_refusal_of_the_probe_is_an_answer(cluster, caplog):
    """A node with narrow rights may not ask for the version."""
    asked = Asked()

    def is_probe(ask) -> bool:
        asked(ask)
        return ask.path == "/version"

    cluster.api.faults.plan(RefuseRequest(refusals.unauthorized()), applies=is_probe, times=1000)
    async with following(cluster, cluster.port, QUIET):
        while asked.probes < 3:
            asked.probed.clear()
            await asked.probed.wait()
    assert asked.watches == 1
    assert caplog.messages == []
