"""klet's client on a real API server: what an imitation could get wrong."""

import asyncio
import random

import pytest

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.namespace import Namespace
from klet.api.node import Node
from klet.api.pod import Pod
from klet.kube.client import PAGE, PatchType
from klet.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import Watcher, WatchScope
from klet.testing.control_plane.identities import node_user

MINE = "requests"


@pytest.fixture
async def space(api):
    """A namespace of the test's own."""
    namespace = await api.client.create(Namespace(metadata=ObjectMeta(generate_name="requests-")))
    yield namespace.metadata.name
    await api.client.delete(Namespace, namespace.metadata.name)


def a_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


async def test_a_list_of_many_pages_is_whole(api, space):
    async def make(numbers) -> None:
        for number in numbers:
            await api.client.create(a_map(f"m-{number}"), space)

    numbers = iter(range(PAGE + 1))
    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(make(numbers))
    listed = await api.client.list(ConfigMap, space)
    assert {each.metadata.name for each in listed.items} == {f"m-{number}" for number in range(PAGE + 1)}


async def test_refusals(api, space):
    client = api.client
    made = await client.create(a_map("a", k="1"), space)
    with pytest.raises(AlreadyExists):
        await client.create(a_map("a"), space)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "b", space)
    with pytest.raises(Invalid):
        await client.create(a_map("Not A Name"), space)
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", space, uid="another")
    await client.patch(ConfigMap, "a", space, patch={"data": {"k": "2"}})
    with pytest.raises(Conflict):
        await client.update(made, "a", space)
    await client.delete(ConfigMap, "a", space, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", space)


@pytest.mark.parametrize(
    ("how", "patch"),
    [
        pytest.param(PatchType.STRATEGIC, {"data": {"k": None, "l": "2"}}, id="strategic"),
        pytest.param(PatchType.MERGE, {"data": {"k": None, "l": "2"}}, id="merge"),
        pytest.param(
            PatchType.JSON,
            [{"op": "remove", "path": "/data/k"}, {"op": "add", "path": "/data/l", "value": "2"}],
            id="JSON",
        ),
    ],
)
async def test_patches(api, space, how, patch):
    await api.client.create(a_map("a", k="1"), space)
    patched = await api.client.patch(ConfigMap, "a", space, patch=patch, how=how)
    assert patched.data == {"l": "2"}


async def test_an_informer_follows_and_is_not_confused_by_a_restart_of_its_connections(api, space, control_plane):
    await api.client.create(a_map("a"), space)
    async with control_plane.transport() as transport, asyncio.TaskGroup() as group:
        chance = random.Random(1)
        watcher = Watcher(transport=transport, randomness=chance)
        settings = InformerSettings(api.client, watcher, control_plane.clock, chance)
        informer = Informer(struct=ConfigMap, scope=WatchScope(space), settings=settings)
        task = group.create_task(informer.run())
        await informer.until_synced()
        assert {each.metadata.name for each in informer.all()} >= {"a"}
        with informer.changes() as changes:
            await transport.reconnect()
            await api.client.create(a_map("b"), space)
            await api.client.delete(ConfigMap, "a", space)
            async with asyncio.timeout(20):
                while informer.get("a", space) is not None or informer.get("b", space) is None:
                    await changes.get()
        task.cancel()


async def test_a_node_may_only_touch_what_is_its_own(api, control_plane):
    """The Node authorizer and NodeRestriction are on: the other tests show that klet can live with them."""
    await api.client.create(Node(metadata=ObjectMeta(name="someone-else")))
    async with control_plane.client(*node_user(MINE)) as client:
        await client.create(Node(metadata=ObjectMeta(name=MINE)))
        with pytest.raises(Forbidden):
            await client.patch(Node, "someone-else", patch={"status": {"phase": "x"}}, subresource="status")
        with pytest.raises(Forbidden):
            await client.list(Pod, query=(("fieldSelector", "spec.nodeName=someone-else"),))
        with pytest.raises(Forbidden):
            await client.get(ConfigMap, "kube-root-ca.crt", "default")
    await api.client.delete(Node, MINE)
    await api.client.delete(Node, "someone-else")
