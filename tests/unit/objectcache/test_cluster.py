"""Registration by pod, and the choice of the strategy."""

import asyncio
import random
from datetime import timedelta

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.kube.informer import InformerSettings
from klet.model.objects import ObjectKind, ObjectRef, pod_config_maps
from klet.objectcache.cluster import (
    ChangeDetectionStrategy,
    ChangedObjects,
    ClusterObjects,
    PodObjects,
    build_cluster_objects,
)
from klet.objectcache.errors import Standalone, UnknownStrategy
from klet.objectcache.standalone import StandaloneObjects


def pod_with(*names, uid="u", secrets=()):
    volumes = [{"name": f"v{number}", "configMap": {"name": name}} for number, name in enumerate(names)]
    volumes += [{"name": f"s{number}", "secret": {"secretName": name}} for number, name in enumerate(secrets)]
    meta = {"name": "p", "namespace": "ns", "uid": uid}
    return convert(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c"}], "volumes": volumes}})


class Notes:
    """A store that notes its calls."""

    def __init__(self):
        self.recorded = []

    def add_reference(self, namespace, name, uid):
        self.recorded.append(f"+{namespace}/{name} {uid}")

    def drop_reference(self, namespace, name, uid):
        self.recorded.append(f"-{namespace}/{name} {uid}")

    async def get(self, namespace, name):
        return f"{namespace}/{name}"

    async def run(self):
        await asyncio.Event().wait()


@pytest.fixture
def store():
    return Notes()


@pytest.fixture
def objects(store):
    return PodObjects(store=store, names_of=pod_config_maps)


def test_a_pod_adds_one_reference_for_each_name(objects, store):
    objects.register(pod_with("a", "b", "a"))
    assert store.recorded == ["+ns/a u", "+ns/b u"]


def test_the_same_pod_again_does_nothing(objects, store):
    objects.register(pod_with("a"))
    objects.register(pod_with("a"))
    assert store.recorded == ["+ns/a u"]


def test_a_changed_pod_adds_what_is_new_and_drops_what_is_gone(objects, store):
    objects.register(pod_with("a", "b"))
    store.recorded.clear()
    objects.register(pod_with("b", "c"))
    assert store.recorded == ["+ns/c u", "-ns/a u"]


def test_a_pod_that_is_over_drops_all_of_its_last_form(objects, store):
    objects.register(pod_with("a"))
    objects.register(pod_with("b"))
    store.recorded.clear()
    objects.unregister("u")
    objects.unregister("u")
    assert store.recorded == ["-ns/b u"]


async def test_both_kinds_are_registered_and_read():
    maps, secrets = Notes(), Notes()
    cluster = ClusterObjects(config_maps=maps, secrets=secrets, changed=ChangedObjects())
    cluster.register(pod_with("a", secrets=["b"]))
    cluster.unregister("u")
    assert (maps.recorded, secrets.recorded) == (["+ns/a u", "-ns/a u"], ["+ns/b u", "-ns/b u"])
    assert await cluster.config_map("ns", "a") == "ns/a"
    assert await cluster.secret("ns", "b") == "ns/b"


def test_changes_are_on_the_board():
    changed = ChangedObjects()
    cluster = ClusterObjects(config_maps=Notes(), secrets=Notes(), changed=changed)
    with cluster.changes() as changes:
        changed.add(ObjectKind.SECRET, "ns", "b")
        assert changes.drain() == [ObjectRef(ObjectKind.SECRET, "ns", "b")]


def build(strategy, client, clock):
    settings = InformerSettings(client, None, clock, random.Random(1))
    return build_cluster_objects(
        strategy, settings=settings, client=settings.client, node=lambda: None, sync_period=timedelta(minutes=1)
    )


@pytest.mark.parametrize(
    ("strategy", "asked"),
    [
        pytest.param(ChangeDetectionStrategy.GET, ["", ""], id="Get asks each time"),
        pytest.param(ChangeDetectionStrategy.CACHE, [""], id="Cache asks once"),
    ],
)
async def test_the_strategy_says_how_often_is_asked(strategy, asked, client, clock, config_map):
    client.objects["ns", "cfg"] = config_map(x="1")
    cluster = build(strategy, client, clock)
    cluster.register(pod_with("cfg"))
    for _ in range(2):
        assert (await cluster.config_map("ns", "cfg")).data == {"x": "1"}
    assert [version for _, _, version in client.asked] == asked


def test_an_unknown_strategy_is_refused(client, clock):
    with pytest.raises(UnknownStrategy, match=r"^unknown configmap and secret manager mode: Guess$"):
        build("Guess", client, clock)


async def test_a_node_without_an_api_server_has_no_objects():
    objects = StandaloneObjects()
    objects.register(pod_with("a"))
    objects.unregister("u")
    for read in (objects.config_map, objects.secret):
        with pytest.raises(Standalone, match=r"^not supported due to running kubelet in standalone mode$"):
            await read("ns", "a")
    with objects.changes() as changes:
        assert changes.drain() == []
