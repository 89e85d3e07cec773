"""The images of the wired agent: shown on its socket, and collected when their disk is full, in virtual time."""

import asyncio
from datetime import timedelta

import aiohttp
from msgspec.structs import replace

from klet.aio.clock import LoopClock, SystemClock
from klet.api.klet_v1_images import IMAGE_GC, IMAGES, ImageGcPreview, NodeImageListing
from klet.images.gc import PERIOD
from klet.images.gc_plan import ImageGcPolicy
from klet.model.images import ImageRecord
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.fake_host import DISK
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script, any_image
from klet.testing.loop import EPOCH, run_virtual
from klet.testing.strict import decode_strictly

GIB = 1 << 30
UID = PodUID("uid-0")
USED, UNUSED = FakeImage(name=IMAGE, size=30 * GIB), FakeImage(name="registry.test/unused:1", size=30 * GIB)


def full_disk(runtime: FakeRuntime):
    """Return a filesystem of 100 GiB that holds the images and 30 GiB of something else."""

    def find():
        used = 30 * GIB + sum(stored.image.size for stored in runtime.stored_images())
        return replace(DISK, used=used, available=DISK.capacity - used)

    return find


def test_the_wired_agent_collects_what_no_pod_uses_and_pulls_it_again_for_one_that_does():
    runtime = FakeRuntime(start=EPOCH, images=(USED, UNUSED), script=Script(registry=any_image(size=GIB)))
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)
    node.disk.find_filesystem = full_disk(runtime)

    async def until_running(agent, uid: PodUID) -> None:
        while (status := agent.statuses.get(uid)) is None or status.phase != "Running":
            await node.clock.sleep(timedelta(seconds=0.1))

    async def story() -> None:
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID))
            await until_running(running.agent, UID)
            await node.clock.sleep(PERIOD / 2)
            assert len(runtime.stored_images()) == 2, "the first collection sees images that are too young"
            await node.clock.sleep(PERIOD)
            assert [stored.image for stored in runtime.stored_images()] == [USED]
            assert [each.id for each in running.agent.images.found] == [USED.image_id]
            collected = [cause.finding for cause in node.journal.all() if cause.finding.decision == "ImageCollected"]
            assert [each.measurements["image"] for each in collected] == [UNUSED.name]
            pod = make_pod("main", uid=PodUID("uid-1"), name="other")
            container = replace(pod.spec.containers[0], image=UNUSED.name)
            wanted.add(replace(pod, spec=replace(pod.spec, containers=(container,))))
            await until_running(running.agent, PodUID("uid-1"))
            await node.clock.sleep(PERIOD * 2)
            assert len(runtime.stored_images()) == 2

    run_virtual(story())


def test_a_threshold_of_100_switches_it_off():
    runtime = FakeRuntime(start=EPOCH, images=(USED, UNUSED))
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, image_gc=ImageGcPolicy(high=100))
    node.disk.find_filesystem = full_disk(runtime)

    async def story() -> None:
        async with node.run_agent(DrivenPodSource()) as running:
            await node.clock.sleep(PERIOD * 3)
            preview = await running.agent.image_views.preview()
            assert (preview.rules.enabled, preview.bytes_to_free) == (False, 0)
            assert {each.id for each in running.agent.images.found} == {USED.image_id, UNUSED.image_id}

    run_virtual(story())
    assert len(runtime.stored_images()) == 2


async def test_the_socket_of_the_agent_serves_images_and_the_preview(tmp_path):
    clock = SystemClock()
    runtime = FakeRuntime(start=clock.now(), images=(USED, UNUSED))
    node = SimulatedNode(clock=clock, runtime=runtime)
    node.disk.find_filesystem = full_disk(runtime)
    wanted = DrivenPodSource()
    wanted.add(make_pod("main", uid=UID, name="web"))
    path = tmp_path / "klet.sock"
    async with node.run_agent(wanted, socket=path) as running, asyncio.timeout(60):
        with running.agent.statuses.changes() as changes:
            while (status := running.agent.statuses.get(UID)) is None or status.phase != "Running":
                await changes.get()
        connector = aiohttp.UnixConnector(path=str(path))
        async with aiohttp.ClientSession("http://agent", connector=connector) as session:
            async with session.get(IMAGES) as answer:
                listing = decode_strictly(NodeImageListing, await answer.read())
            async with session.get(IMAGE_GC) as answer:
                preview = decode_strictly(ImageGcPreview, await answer.read())
    users = {image.id: [(user.how, user.pod) for user in image.users] for image in listing.images}
    assert users == {USED.image_id: [("container", "web")], UNUSED.image_id: []}
    assert preview.disk.used_percent == 90
    assert {fate.image.id: fate.reason for fate in preview.fates} == {
        USED.image_id: "inUse",
        UNUSED.image_id: "tooYoung",
    }


def test_the_board_of_images_is_empty_until_the_runtime_has_answered():
    runtime = FakeRuntime(start=EPOCH, images=(USED,))
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, met=None)

    async def story() -> None:
        async with node.run_agent(DrivenPodSource()) as running:
            assert running.agent.images.found == ()
            await node.clock.sleep(timedelta(seconds=1))
            [found] = running.agent.images.found
            assert isinstance(found, ImageRecord)
            assert found.size == USED.size

    run_virtual(story())
