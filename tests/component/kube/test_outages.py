"""An API server that goes away and comes back, with several parts that ask it all the time: what the log says."""

import asyncio
import logging
import random
from datetime import timedelta

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.embedded.server import serving
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.informer import Informer, InformerSettings
from klet.kube.outages import OutageLogger
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Watcher, WatchScope
from klet.node.lease import LeaseKeeper, LeaseTerms
from klet.testing.clock import FastClock


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_lost_server_is_two_lines_however_many_ask_it(cluster, unused_tcp_port, caplog):
    caplog.set_level(logging.INFO, logger="klet")
    await cluster.client.create(Node(metadata=ObjectMeta(name="n1")))
    clock, randomness, login = FastClock(), random.Random(1), Login(token="secret")
    access = Access(server=f"http://127.0.0.1:{unused_tcp_port}", login=login)
    transport = Transport(access=access, credentials=Credentials(login=login, clock=clock))
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
    watcher = Watcher(transport=transport, randomness=randomness)
    settings = InformerSettings(client, watcher, clock, randomness)
    informers = [
        Informer(struct=ConfigMap, scope=WatchScope(namespace), settings=settings)
        for namespace in ("default", "kube-system", "other")
    ]
    lease = LeaseKeeper(
        api=client,
        terms=LeaseTerms("n1", timedelta(seconds=4)),
        until_node=never,
        on_failure=transport.reconnect,
        clock=clock,
        randomness=randomness,
    )
    outages = OutageLogger(server=access.server, reaches=(transport.reach,), clock=clock)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (outages, lease, *informers)]
        with transport.reach.troubles() as troubles:
            failed = 0
            while failed < 30:
                failed += bool(await troubles.get())
        async with serving(cluster.api, host="127.0.0.1", port=unused_tcp_port):
            for informer in informers:
                await informer.until_synced()
            for task in tasks:
                task.cancel()
    await transport.close()
    lost, back = caplog.records
    assert (lost.message, lost.levelname) == ("The API server does not answer; trying again", "WARNING")
    assert (back.message, back.levelname) == ("The API server answers again", "INFO")
    assert back.attempts >= 30
