"""Progress of pulls that a real containerd does, from a registry that holds still in the middle of a layer."""

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.cri.client import connect
from klet.cri.connection import open_connection
from klet.cri.content import NAMESPACE, ContainerdContent
from klet.host.images import file
from klet.images.pull_meter import PullMeter
from klet.images.running_pulls import NotedImages, RunningPulls
from klet.model.pull_progress import PullStage
from klet.testing.containerd import REQUEST_TIMEOUT
from klet.testing.held_registry import HeldRegistry, make_image
from klet.wire import cri_v1_pb2 as cri

pytestmark = [pytest.mark.root, pytest.mark.containerd]

MIB = 1 << 20
POLL = timedelta(milliseconds=50)
SANDBOX = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(namespace="default", name="web", uid="u"))


class Pulling:
    """An image service that notes pulls, the meter that measures them, and the client below."""

    def __init__(self, client, content):
        self.clock = SystemClock()
        board = RunningPulls()
        self.client = client
        self.images = NotedImages(inner=client, board=board, clock=self.clock)
        self.meter = PullMeter(pulls=board, content=content, clock=self.clock)

    async def pull(self, image):
        spec = cri.ImageSpec(image=image)
        answer = await self.images.pull_image(cri.PullImageRequest(image=spec, sandbox_config=SANDBOX))
        await self.client.remove_image(cri.RemoveImageRequest(image=spec))
        return answer.image_ref

    async def until(self, holds):
        """Return the only pull, as soon as this holds of it."""
        while True:
            pulls = await self.meter.look()
            if len(pulls) == 1 and holds(pulls[0]):
                return pulls[0]
            await self.clock.sleep(POLL)


@asynccontextmanager
async def pulling_from(daemon):
    async with (
        connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as client,
        open_connection(daemon.endpoint, metadata=NAMESPACE) as way,
    ):
        yield Pulling(client, ContainerdContent(connection=way))


def new_image(seed, repository="team/app", tag="1"):
    """An image whose layers no other test has."""
    noise = random.Random(seed)
    layers = [[file("small", noise.randbytes(MIB))], [file("large", noise.randbytes(8 * MIB))]]
    return make_image(repository, layers=layers, tag=tag)


async def test_bytes_total_rate_and_time_left(containerd):
    await check_progress(containerd, new_image("progress"))


async def test_the_same_on_a_newer_release(newer_containerd):
    await check_progress(newer_containerd, new_image("progress on a newer release"))


async def check_progress(daemon, image):
    at_hold = size_of(image) - image.layers[1][1] + 4 * MIB
    registry = HeldRegistry([image])
    registry.hold(image.layers[1][0], after=4 * MIB)
    async with pulling_from(daemon) as node, registry.serve():
        name = f"{registry.address}/team/app:1"
        async with asyncio.TaskGroup() as group:
            pulled = group.create_task(node.pull(name))
            # Not a byte more than was sent is there, however long one waits.
            held = await node.until(lambda pull: (pull.fetched or 0) >= at_hold)
            assert (held.image, held.namespace, held.pod) == (name, "default", "web")
            assert (held.stage, held.fetched, held.total) == (PullStage.FETCHING, at_hold, size_of(image))
            held = await node.until(lambda pull: pull.rate is not None)
            assert held.rate >= 0
            registry.release()
        assert pulled.result()
        assert await node.meter.look() == ()


async def test_of_two_versions_each_has_its_own_progress(containerd):
    first, second = new_image("version 1", tag="1"), new_image("version 2", tag="2")
    registry = HeldRegistry([first, second])
    registry.hold(first.layers[1][0], after=2 * MIB)
    registry.hold(second.layers[1][0], after=5 * MIB)
    expected = [size_of(image) - image.layers[1][1] + sent for image, sent in ((first, 2 * MIB), (second, 5 * MIB))]
    async with pulling_from(containerd) as node, registry.serve():
        async with asyncio.TaskGroup() as group:
            one = group.create_task(node.pull(f"{registry.address}/team/app:1"))
            await node.until(lambda pull: pull.fetched == expected[0])
            # The manifest of the second comes after its pull began, and that of the first is known by then.
            two = group.create_task(node.pull(f"{registry.address}/team/app:2"))
            while [pull.fetched for pull in await node.meter.look()] != expected:
                await node.clock.sleep(POLL)
            registry.release()
        assert one.result() != two.result()


def size_of(image):
    return sum(len(blob) for blob in image.blobs.values())
