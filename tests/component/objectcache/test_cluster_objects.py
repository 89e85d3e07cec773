"""Config maps, secrets and tokens from a real API server, through cut watches and refusals."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.embedded import refusals
from klet.embedded.faults import Cut, RefuseRequest
from klet.kube.informer import InformerSettings
from klet.model.objects import ObjectKind, ObjectMissing, ObjectRef
from klet.objectcache.cluster import ChangeDetectionStrategy, ClusterObjects, build_cluster_objects
from klet.objectcache.errors import NotSynced, TokenFailed
from klet.objectcache.tokens import TokenCache

CFG = ObjectRef(ObjectKind.CONFIG_MAP, "default", "cfg")
POD = convert(
    Pod,
    {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "serviceAccountName": "default",
            "volumes": [
                {"name": "cfg", "configMap": {"name": "cfg"}},
                {"name": "key", "secret": {"secretName": "key"}},
            ],
        },
    },
)


class HastyWatches(SystemClock):
    """Waits a twentieth before a watch is tried again."""

    async def sleep(self, duration: timedelta) -> None:
        # The patience of readers stays whole: this machine may be busy.
        await super().sleep(duration if duration == timedelta(seconds=1) else duration / 20)


def build(cluster, strategy=ChangeDetectionStrategy.WATCH) -> ClusterObjects:
    settings = InformerSettings(cluster.client, cluster.watcher, HastyWatches(), random.Random(1))
    return build_cluster_objects(
        strategy, settings=settings, client=settings.client, node=lambda: None, sync_period=timedelta(minutes=1)
    )


@asynccontextmanager
async def running(objects: ClusterObjects) -> AsyncIterator[ClusterObjects]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(objects.run())
        yield objects
        task.cancel()


@pytest.fixture
async def objects(cluster):
    """Registered, with the config map seen for the first time."""
    await cluster.put("cfg", x="1")
    async with running(build(cluster)) as made:
        made.register(POD)
        assert (await made.config_map("default", "cfg")).data == {"x": "1"}
        yield made


async def change(cluster, **data: str) -> None:
    await cluster.client.patch(ConfigMap, "cfg", "default", patch={"data": data})


@pytest.mark.parametrize("strategy", ChangeDetectionStrategy)
async def test_every_strategy_reads_what_is_there(cluster, strategy):
    await cluster.put("cfg", x="1")
    secret = Secret(metadata=ObjectMeta(name="key"), data={"k": b"\xff"})
    await cluster.client.create(secret, "default")
    async with running(build(cluster, strategy)) as objects:
        objects.register(POD)
        assert (await objects.config_map("default", "cfg")).data == {"x": "1"}
        assert (await objects.secret("default", "key")).data == {"k": b"\xff"}


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        pytest.param(ChangeDetectionStrategy.WATCH, 'configmap "cfg" not found', id="a watch knows the kind"),
        pytest.param(ChangeDetectionStrategy.CACHE, 'configmaps "cfg" not found', id="the server's own words"),
        pytest.param(ChangeDetectionStrategy.GET, 'configmaps "cfg" not found', id="the server's own words, each time"),
    ],
)
async def test_what_is_not_there_is_missing(cluster, strategy, message):
    async with running(build(cluster, strategy)) as objects:
        objects.register(POD)
        with pytest.raises(ObjectMissing) as caught:
            await objects.config_map("default", "cfg")
    assert str(caught.value) == message


async def test_a_change_is_reported_and_can_be_read_then(cluster, objects):
    with objects.changes() as changes:
        await change(cluster, x="2")
        assert await changes.get() == CFG
        assert (await objects.config_map("default", "cfg")).data == {"x": "2"}
        await cluster.client.delete(ConfigMap, "cfg", "default")
        assert await changes.get() == CFG
        with pytest.raises(ObjectMissing):
            await objects.config_map("default", "cfg")


async def test_a_watch_is_for_one_object_only(cluster, objects):
    with objects.changes() as changes:
        await cluster.put("other")
        await change(cluster, x="2")
        assert await changes.get() == CFG
        assert changes.drain() == []


async def test_a_cut_watch_loses_no_change(cluster, objects):
    with objects.changes() as changes:
        cluster.api.faults.plan(Cut(), applies=lambda ask: ask.is_watch, times=2)
        await cluster.transport.reconnect()
        await change(cluster, x="2")
        assert await changes.get() == CFG
    assert (await objects.config_map("default", "cfg")).data == {"x": "2"}


async def test_a_watch_that_is_too_old_finds_what_changed(cluster, objects):
    with objects.changes() as changes:
        cluster.api.faults.plan(Cut(), applies=lambda ask: ask.is_watch, times=2)
        await cluster.transport.reconnect()
        await change(cluster, x="2")
        cluster.api.store.forget_history()
        assert await changes.get() == CFG
    assert (await objects.config_map("default", "cfg")).data == {"x": "2"}


async def test_what_was_seen_stays_readable_while_the_server_is_away(cluster, objects):
    cluster.api.faults.plan(RefuseRequest(refusals.internal("boom")), times=1_000)
    await cluster.transport.reconnect()
    assert (await objects.config_map("default", "cfg")).data == {"x": "1"}


async def test_what_was_never_seen_cannot_be_had_while_the_server_is_away(cluster):
    cluster.api.faults.plan(RefuseRequest(refusals.internal("boom")), times=1_000)
    async with running(build(cluster)) as objects:
        objects.register(POD)
        with pytest.raises(NotSynced):
            await objects.config_map("default", "cfg")


async def test_a_pod_that_is_over_ends_the_watches(cluster, objects):
    objects.unregister("u")
    with objects.changes() as changes:
        objects.register(POD)
        assert (await objects.config_map("default", "cfg")).data == {"x": "1"}
        assert changes.drain() == []


def request_for(uid: str) -> TokenRequest:
    bound = BoundObjectReference(kind="Pod", api_version="v1", name="p", uid=uid)
    return TokenRequest(spec=TokenRequestSpec(audiences=(), expiration_seconds=3600, bound_object_ref=bound))


@pytest.fixture
def tokens(cluster) -> TokenCache:
    return TokenCache(client=cluster.client, randomness=random.Random(1), clock=SystemClock())


async def test_a_token_speaks_for_the_account(cluster, tokens):
    pod = await cluster.client.create(POD, "default")
    found = await tokens.get("default", "default", request_for(pod.metadata.uid))
    user = cluster.api.identities.review(found.token, ())
    assert user.name == "system:serviceaccount:default:default"
    assert found.refresh_at is not None
    assert await tokens.get("default", "default", request_for(pod.metadata.uid)) == found


async def test_a_token_of_a_pod_that_does_not_exist(tokens):
    with pytest.raises(TokenFailed, match=r'^failed to fetch token: .*"p" not found$'):
        await tokens.get("default", "default", request_for("u"))
