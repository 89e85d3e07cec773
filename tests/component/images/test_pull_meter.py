"""Pulls measured with a content store over gRPC: read when somebody looks, with a clock that the test moves."""

import asyncio
import json
from contextlib import contextmanager
from datetime import timedelta

import pytest

from klet.cri.connection import open_connection
from klet.cri.content import NAMESPACE, ContainerdContent
from klet.images.pull_meter import PullMeter
from klet.images.running_pulls import NotedImages, RunningPulls
from klet.model.pull_progress import PullStage
from klet.testing.clock import ManualClock
from klet.testing.fake_content import FakeContent
from klet.wire import cri_v1_pb2 as cri

IMAGE = "registry.test:5000/team/app:1"


def digest(name):
    return f"sha256:{name * 64}"


A, B, C = digest("a"), digest("b"), digest("c")
MANIFEST = json.dumps(
    {"config": {"digest": C, "size": 100}, "layers": [{"digest": A, "size": 1000}, {"digest": B, "size": 4000}]}
).encode()


class Node:
    """A meter, and the content store that it reads."""

    def __init__(self, store):
        self.clock = ManualClock()
        self.board = RunningPulls()
        self.content = FakeContent()
        self.meter = PullMeter(pulls=self.board, content=store, clock=self.clock)

    @contextmanager
    def pulling(self, image=IMAGE, *, pod="web"):
        with self.board.running(image, namespace="default", pod=pod, clock=self.clock):
            yield

    def resolved(self, manifest=MANIFEST):
        return self.content.add_manifest(
            manifest, created=self.clock.now(), host="registry.test", repositories=("team/app",)
        )

    def pass_seconds(self, seconds):
        self.clock.advance(timedelta(seconds=seconds))

    async def look(self):
        """Return the only pull, at a later look than the last."""
        self.pass_seconds(1)
        [progress] = await self.meter.look()
        return progress


@pytest.fixture
async def node(tmp_path):
    endpoint = tmp_path / "c.sock"
    async with open_connection(str(endpoint), metadata=NAMESPACE) as way:
        node = Node(ContainerdContent(connection=way, deadline=timedelta(seconds=60)))
        async with node.content.serve(endpoint):
            yield node


async def test_a_pull_from_its_beginning_to_its_end(node):
    node.content.add_blob(B, size=4000, created=node.clock.now() - timedelta(days=1))
    with node.pulling():
        progress = await node.look()
        assert (progress.stage, progress.fetched, progress.left) == (PullStage.UNKNOWN, None, None)
        assert progress.elapsed == timedelta(seconds=1)
        node.resolved()
        node.content.fetch(A, offset=0, total=1000, began=node.clock.now())
        progress = await node.look()
        assert (progress.stage, progress.fetched, progress.total) == (PullStage.FETCHING, 4000, 5100)
        assert (progress.rate, progress.left) == (0.0, None)
        node.content.fetch(A, offset=800, total=1000, began=node.clock.now())
        node.pass_seconds(1)
        progress = await node.look()
        assert (progress.fetched, progress.percent) == (4800, 94)
        assert progress.rate == 200.0  # 800 bytes in the 4 seconds since the pull began
        assert progress.left == timedelta(seconds=1.5)
        node.content.add_blob(A, size=1000, created=node.clock.now())
        node.content.add_blob(C, size=100, created=node.clock.now())
        progress = await node.look()
        assert (progress.stage, progress.fetched, progress.left) == (PullStage.UNPACKING, 5100, None)
    assert await node.meter.look() == ()


async def test_nothing_is_read_while_nothing_is_pulled(node):
    assert await node.meter.look() == ()
    assert node.content.calls == []


async def test_many_who_look_cost_one_read(node):
    with node.pulling():
        await asyncio.gather(*(node.meter.look() for _ in range(50)))
        assert node.content.calls == ["ListStatuses", "List"]


async def test_a_known_manifest_is_not_looked_for_again(node):
    node_calls = node.content.calls
    with node.pulling():
        node.resolved()
        await node.look()
        assert node_calls == ["ListStatuses", "List", "Read", "List"]
        node_calls.clear()
        await node.look()
        assert node_calls == ["ListStatuses", "List"]


async def test_two_pods_that_pull_one_image_have_the_same_progress(node):
    with node.pulling(pod="web"), node.pulling(pod="worker"):
        node.resolved()
        node.content.add_blob(A, size=1000, created=node.clock.now())
        node.pass_seconds(1)
        first, second = await node.meter.look()
        assert (first.pod, second.pod) == ("web", "worker")
        assert first.fetched == second.fetched == 1000


async def test_a_pull_that_began_later_finds_what_an_earlier_one_has_fetched(node):
    with node.pulling(pod="web"):
        node.resolved()
        node.content.add_blob(A, size=1000, created=node.clock.now())
        await node.look()
        node.content.fetch(B, offset=10, total=4000, began=node.clock.now())
        node.pass_seconds(1)
        with node.pulling(pod="worker"):
            node.pass_seconds(1)
            first, second = await node.meter.look()
            assert first.fetched == second.fetched == 1010


async def test_a_new_pull_of_an_image_begins_afresh(node):
    with node.pulling():
        node.resolved()
        node.content.fetch(A, offset=900, total=1000, began=node.clock.now())
        assert (await node.look()).fetched == 900
    node.pass_seconds(60)
    with node.pulling():
        node.content.fetch(A, offset=100, total=1000, began=node.clock.now())
        progress = await node.look()
        assert (progress.fetched, progress.elapsed) == (100, timedelta(seconds=1))


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(b'{"layers": [{"digest": "sha256:../..", "size": 1}]}', id="a digest that is none"),
        pytest.param(b"x" * (5 << 20), id="too long"),
    ],
)
async def test_a_hostile_manifest_leaves_the_time(node, manifest):
    with node.pulling():
        node.resolved(manifest)
        progress = await node.look()
        assert (progress.stage, progress.fetched) == (PullStage.UNKNOWN, None)
        assert progress.elapsed == timedelta(seconds=1)


async def test_a_name_that_is_none_leaves_the_time(node):
    with node.pulling('UPPER/case"; rm -rf'):
        assert (await node.look()).stage is PullStage.UNKNOWN


async def test_a_store_that_goes_away_leaves_what_was_read(tmp_path):
    endpoint = tmp_path / "c.sock"
    async with open_connection(str(endpoint), metadata=NAMESPACE) as way:
        node = Node(ContainerdContent(connection=way))
        with node.pulling():
            async with node.content.serve(endpoint):
                node.resolved()
                node.content.add_blob(A, size=1000, created=node.clock.now())
                assert (await node.look()).fetched == 1000
            progress = await node.look()
            assert (progress.fetched, progress.elapsed) == (1000, timedelta(seconds=2))


async def test_a_runtime_without_a_content_store_has_times():
    node = Node(None)
    with node.pulling():
        progress = await node.look()
        assert (progress.stage, progress.elapsed) == (PullStage.UNKNOWN, timedelta(seconds=1))


async def test_pulls_are_noted_as_long_as_they_last():
    class Images:
        async def pull_image(self, request):
            assert request.image.image == IMAGE
            assert [(pull.image, pull.namespace, pull.pod) for pull in board.all()] == [(IMAGE, "default", "web")]
            raise RuntimeError("refused")

    board = RunningPulls()
    noted = NotedImages(inner=Images(), board=board, clock=ManualClock())
    sandbox = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(namespace="default", name="web"))
    with pytest.raises(RuntimeError, match="refused"):
        await noted.pull_image(cri.PullImageRequest(image=cri.ImageSpec(image=IMAGE), sandbox_config=sandbox))
    assert board.all() == ()
