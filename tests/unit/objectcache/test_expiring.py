"""Objects that are read again when they are old."""

import asyncio
from datetime import timedelta

import pytest

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.errors import KletError
from klet.kube.errors import Unreachable
from klet.model.objects import ObjectMissing
from klet.objectcache.expiring import DEFAULT_TTL, ExpiringObjects, ttl_of

KEY = ("ns", "cfg")
TTL = timedelta(seconds=60)


class Expiring:
    def __init__(self, client, clock):
        self.ttl = TTL
        self.changed = []
        self.store = ExpiringObjects(
            struct=ConfigMap,
            client=client,
            ttl=lambda: self.ttl,
            on_change=lambda *key: self.changed.append(key),
            clock=clock,
        )


@pytest.fixture
def expiring(client, clock):
    made = Expiring(client, clock)
    made.store.add_reference(*KEY, "a")
    return made


async def test_an_object_that_no_pod_refers_to_cannot_be_read(expiring):
    expiring.store.drop_reference(*KEY, "a")
    with pytest.raises(KletError, match=r'^object "ns"/"cfg" not registered$'):
        await expiring.store.get(*KEY)


async def test_a_fresh_object_is_not_asked_for_again(expiring, client, clock, config_map):
    client.objects[KEY] = config_map("1")
    assert await expiring.store.get(*KEY) == config_map("1")
    clock.advance(timedelta(seconds=59))
    await expiring.store.get(*KEY)
    assert client.asked == [(*KEY, "")]


async def test_an_old_object_is_read_from_the_servers_cache(expiring, client, clock, config_map):
    client.objects[KEY] = config_map("1")
    await expiring.store.get(*KEY)
    clock.advance(TTL)
    client.objects[KEY] = config_map("2")
    assert await expiring.store.get(*KEY) == config_map("2")
    assert client.asked == [(*KEY, ""), (*KEY, "0")]
    assert expiring.changed == [KEY]


async def test_a_lifetime_of_zero_means_each_time(expiring, client, config_map):
    expiring.ttl = timedelta()
    client.objects[KEY] = config_map("1")
    await expiring.store.get(*KEY)
    await expiring.store.get(*KEY)
    assert len(client.asked) == 2


async def test_a_new_reference_makes_the_object_old(expiring, client, config_map):
    client.objects[KEY] = config_map("1")
    await expiring.store.get(*KEY)
    expiring.store.add_reference(*KEY, "b")
    await expiring.store.get(*KEY)
    assert client.asked == [(*KEY, ""), (*KEY, "")]


async def test_the_last_reference_gone_drops_the_object(expiring, client, config_map):
    client.objects[KEY] = config_map("1")
    expiring.store.add_reference(*KEY, "b")
    expiring.store.drop_reference(*KEY, "a")
    await expiring.store.get(*KEY)
    expiring.store.drop_reference(*KEY, "b")
    expiring.store.drop_reference(*KEY, "b")
    with pytest.raises(KletError, match="not registered"):
        await expiring.store.get(*KEY)


async def test_a_missing_object_is_looked_for_each_time(expiring, client, config_map):
    for _ in range(2):
        with pytest.raises(ObjectMissing, match=r'^configmaps "cfg" not found$'):
            await expiring.store.get(*KEY)
    client.objects[KEY] = config_map("1")
    assert await expiring.store.get(*KEY) == config_map("1")
    assert client.asked == [(*KEY, "")] * 3


async def test_a_failure_leaves_what_was_known(expiring, client, clock, config_map):
    client.objects[KEY] = config_map("1")
    await expiring.store.get(*KEY)
    clock.advance(TTL)
    client.error = Unreachable("away")
    assert await expiring.store.get(*KEY) == config_map("1")


async def test_a_failure_leaves_that_nothing_was_there(expiring, client):
    with pytest.raises(ObjectMissing):
        await expiring.store.get(*KEY)
    client.error = Unreachable("away")
    with pytest.raises(ObjectMissing):
        await expiring.store.get(*KEY)


async def test_a_failure_with_nothing_known_is_raised(expiring, client):
    client.error = Unreachable("away")
    with pytest.raises(Unreachable):
        await expiring.store.get(*KEY)


async def test_an_object_that_is_gone_replaces_what_was_known(expiring, client, clock, config_map):
    client.objects[KEY] = config_map("1")
    await expiring.store.get(*KEY)
    clock.advance(TTL)
    client.objects.clear()
    with pytest.raises(ObjectMissing):
        await expiring.store.get(*KEY)
    assert expiring.changed == [KEY]


async def test_an_older_object_is_not_believed(expiring, client, clock, config_map):
    client.objects[KEY] = config_map("10")
    await expiring.store.get(*KEY)
    clock.advance(TTL)
    client.objects[KEY] = config_map("9")
    assert await expiring.store.get(*KEY) == config_map("10")


async def test_readers_at_one_time_ask_once(expiring, client, config_map):
    client.objects[KEY] = config_map("1")
    await asyncio.gather(expiring.store.get(*KEY), expiring.store.get(*KEY))
    assert len(client.asked) == 1


async def test_an_object_may_live_longer_than_the_calendar(expiring, client, config_map):
    expiring.ttl = ttl_of(Node(metadata=ObjectMeta(annotations={"node.alpha.kubernetes.io/ttl": "86399999999999"})))
    client.objects[KEY] = config_map("1")
    await expiring.store.get(*KEY)
    await expiring.store.get(*KEY)
    assert len(client.asked) == 1


@pytest.mark.parametrize(
    ("annotations", "ttl"),
    [
        pytest.param({"node.alpha.kubernetes.io/ttl": "15"}, timedelta(seconds=15), id="what the cluster says"),
        pytest.param({"node.alpha.kubernetes.io/ttl": "0"}, timedelta(), id="never fresh"),
        pytest.param({"node.alpha.kubernetes.io/ttl": "soon"}, DEFAULT_TTL, id="no number"),
        pytest.param({}, DEFAULT_TTL, id="nothing said"),
    ],
)
def test_the_lifetime_is_the_nodes(annotations, ttl):
    assert ttl_of(Node(metadata=ObjectMeta(annotations=annotations))) == ttl


def test_a_node_that_cannot_be_read_has_the_default():
    assert ttl_of(None) == timedelta(seconds=60)
