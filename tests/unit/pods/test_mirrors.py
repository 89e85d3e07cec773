"""What a mirror looks like, and when it is out of date."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import DEFAULT_LIMIT
from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node
from klet.api.pod import PodStatus
from klet.api.pod_annotations import HASH_ANNOTATION, MIRROR_ANNOTATION
from klet.api.times import Time
from klet.pods.mirror_api import MirrorError
from klet.pods.mirrors import MirrorKeeper, is_mirror_of, make_mirror
from klet.pods.store import PodStore
from klet.testing.builders import NOW, make_pod
from klet.testing.clock import ManualClock

NODE = Node(metadata=ObjectMeta(name="n", uid="node-uid"))


def static(hash_="h1"):
    pod = make_pod(name="web", uid="static", source="file")
    annotations = {**pod.metadata.annotations, HASH_ANNOTATION: hash_}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), status=PodStatus(phase="Running"))


def test_a_mirror_belongs_to_its_node_and_carries_the_hash():
    mirror = make_mirror(static(), NODE)
    assert mirror.metadata.annotations[MIRROR_ANNOTATION] == "h1"
    owner = OwnerReference(api_version="v1", kind="Node", name="n", uid="node-uid", controller=True)
    assert mirror.metadata.owner_references == (owner,)
    assert mirror.spec == static().spec
    assert mirror.status == PodStatus()


def test_a_node_without_uid_can_own_nothing():
    with pytest.raises(MirrorError, match="UID unset for node n"):
        make_mirror(static(), Node(metadata=ObjectMeta(name="n")))


def deleted(mirror):
    return replace(mirror, metadata=replace(mirror.metadata, deletion_timestamp=Time.of(NOW)))


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        pytest.param(make_mirror(static(), NODE), True, id="the same hash"),
        pytest.param(make_mirror(static("h2"), NODE), False, id="another hash"),
        pytest.param(deleted(make_mirror(static(), NODE)), False, id="it is being deleted"),
    ],
)
def test_is_mirror_of(mirror, expected):
    assert is_mirror_of(mirror, static()) is expected


class NodeMirrors:
    """Takes every mirror."""

    def __init__(self):
        self.made = []

    def node(self):
        return NODE

    async def create(self, mirror):
        self.made.append(mirror.metadata.name)


async def test_after_dropped_changes_every_static_pod_gets_its_mirror():
    clock, pods, api = ManualClock(), PodStore(), NodeMirrors()
    keeper = MirrorKeeper(pods=pods, api=api, is_ending=lambda _name: False, clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keeper.run())
        await clock.run(timedelta(0))
        pods.put(static())
        for _ in range(DEFAULT_LIMIT):
            pods.put(make_pod("main", name="other", uid="u-other"))
        await clock.run(timedelta(0))
        task.cancel()
    assert api.made == ["web"]
