"""An API server on loopback and a client of it."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.embedded.identities import ApiUser
from klet.embedded.review_answers import AllowEverything
from klet.embedded.server import EmbeddedApi, build_api, serving
from klet.embedded.store import Store
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.informer import Informer, InformerSettings
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Watcher, WatchScope
from klet.testing.clock import FastClock


@dataclass(frozen=True, slots=True)
class Cluster:
    """One API server, and what is needed to be its client."""

    api: EmbeddedApi
    port: int
    client: KubeClient
    watcher: Watcher
    transport: Transport

    def informer(self, namespace: str = "default") -> Informer[ConfigMap]:
        settings = InformerSettings(self.client, self.watcher, FastClock(), random.Random(1))
        return Informer(struct=ConfigMap, scope=WatchScope(namespace), settings=settings)

    async def put(self, name: str, **data: str) -> ConfigMap:
        return await self.client.create(ConfigMap(metadata=ObjectMeta(name=name), data=data), "default")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    clock = FastClock()
    tokens = {"secret": ApiUser("admin", groups=("system:masters",))}
    api = build_api(store=Store.open(), tokens=tokens, rights=AllowEverything(), clock=clock)
    async with serving(api, host="127.0.0.1") as port:
        login = Login(token="secret")
        transport = Transport(
            access=Access(server=f"http://127.0.0.1:{port}", login=login),
            credentials=Credentials(login=login, clock=clock),
        )
        client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
        watcher = Watcher(transport=transport, randomness=random.Random(1))
        yield Cluster(api, port, client, watcher, transport)
        await transport.close()
    api.store.close()


@pytest.fixture
async def following(cluster: Cluster) -> AsyncIterator[Informer[ConfigMap]]:
    """An informer that runs."""
    informer = cluster.informer()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        yield informer
        task.cancel()
