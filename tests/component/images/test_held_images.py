"""Pods and image garbage collection at the same image, in virtual time."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.images.gc_plan import ImageFateReason
from klet.images.held import HeldImages
from klet.images.keyring import FittingLogins
from klet.model.images import ImageUseKind, MissingImage, PresentImage
from klet.model.pods import PodUID
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import FakeImage, Fault, Script, registry_of
from klet.testing.fake_runtime.faults import DelayCall, Hang
from klet.testing.image_manager import build_image_manager
from klet.wire import cri_v1_pb2 as cri

MIB = 1 << 20
OLD = FakeImage(name="registry.test/old:1", size=100 * MIB, pull_time=timedelta(seconds=2))
UID = PodUID("u-1")
SECOND = timedelta(seconds=1)


class NoLogins:
    """Nobody logs in anywhere."""

    async def find(self, _pod, _image, _repository):
        return FittingLogins()


class Pods:
    """Pods that ask for images, beside a collection."""

    def __init__(self, bench) -> None:
        self._bench = bench
        self.stopping_pods = StoppingPods()
        manager = build_image_manager(
            bench.client,
            NoLogins(),
            recorder=bench.journal,
            clock=bench.clock,
            stopping_pods=self.stopping_pods,
            node_images=bench.node_images,
        )
        self.images = HeldImages(images=manager, holds=bench.holds, stopping_pods=self.stopping_pods, clock=bench.clock)

    async def ensure(self, *, uid: PodUID = UID, policy: str = "IfNotPresent") -> PresentImage | MissingImage:
        container = replace(make_container("main", image=OLD.name), image_pull_policy=policy)
        return await self.images.ensure(
            make_pod(container, name="web", uid=uid),
            container,
            sandbox=cri.PodSandboxConfig(),
            before_pull=lambda: None,
            parent=None,
        )

    def pulls(self) -> int:
        return sum(call.rpc == "PullImage" for call in self._bench.runtime.calls)


def run(on_image_bench, test) -> None:
    async def story(bench) -> None:
        bench.disk.other = 950 * MIB
        await bench.grow_old()
        await test(bench, Pods(bench))

    on_image_bench(story, OLD, script=Script(registry=registry_of(OLD)))


async def remove(bench) -> bool:
    """Remove the image as a collection does that was planned before a pod asked for it."""
    known = next(each for each in bench.board.images() if each.image.id == OLD.image_id)
    return await bench.remover.remove(known, reason=ImageFateReason.SPACE)


def test_an_image_that_was_found_for_a_pod_stays_until_its_container_is_there_and_gone(on_image_bench):
    async def test(bench, pods) -> None:
        assert (await pods.ensure()).ref == OLD.image_id
        assert not await remove(bench)
        [known] = await bench.watcher.look()
        [user] = known.users
        assert (user.kind, user.pod, user.container) == (ImageUseKind.STARTING, "web", "main")
        await bench.clock.sleep(SECOND)
        container = await bench.run_container(OLD.image_id)
        [known] = await bench.watcher.look()
        assert [use.kind for use in known.users] == [ImageUseKind.CONTAINER]
        bench.runtime.end_container(container, 0)
        await bench.client.remove_container(bench.remove_request(container))
        await bench.watcher.look()
        assert await remove(bench)
        assert pods.pulls() == 0

    run(on_image_bench, test)


@pytest.mark.parametrize("is_late", [False, True], ids=["before its effect", "before its answer"])
def test_a_pod_that_comes_while_its_image_is_removed_pulls_it_again(on_image_bench, is_late):
    async def test(bench, pods) -> None:
        bench.runtime.faults.add(Fault("RemoveImage", DelayCall(5 * SECOND, after_effect=is_late)))
        async with asyncio.TaskGroup() as group:
            removal = group.create_task(remove(bench))
            await bench.clock.sleep(SECOND)
            found = group.create_task(pods.ensure())
        assert removal.result()
        assert found.result() == PresentImage(OLD.image_id, found.result().user)
        assert bench.left() == ["old"]
        await bench.watcher.look()
        assert not await remove(bench), "it is held"

    run(on_image_bench, test)


def test_an_image_that_a_pod_saw_before_its_removal_is_not_believed_to_be_there(on_image_bench):
    async def test(bench, pods) -> None:
        await pods.ensure(uid=PodUID("earlier"))
        bench.holds.forget(PodUID("earlier"))  # within the second in which an image is not asked for again
        assert await remove(bench)
        assert bench.left() == []
        await pods.ensure()
        assert (bench.left(), pods.pulls()) == (["old"], 1)

    run(on_image_bench, test)


def test_an_answer_that_is_older_than_a_removal_is_not_believed(on_image_bench):
    async def test(bench, pods) -> None:
        bench.runtime.faults.add(Fault("ImageStatus", DelayCall(5 * SECOND, after_effect=True)))
        async with asyncio.TaskGroup() as group:
            found = group.create_task(pods.ensure())
            await bench.clock.sleep(SECOND)
            assert await remove(bench)
        assert found.result().ref == OLD.image_id
        assert (bench.left(), pods.pulls()) == (["old"], 1)

    run(on_image_bench, test)


def test_a_pod_that_is_stopped_does_not_wait_for_a_removal(on_image_bench):
    async def test(bench, pods) -> None:
        async def ask() -> str:
            try:
                await pods.ensure()
            except PodStopping:
                return "stopped"
            return "waited"

        hang = bench.runtime.faults.add(Fault("RemoveImage", Hang()))
        async with asyncio.TaskGroup() as group:
            removal = group.create_task(remove(bench))
            await bench.clock.sleep(SECOND)
            asked = group.create_task(ask())
            await bench.clock.sleep(SECOND)
            pods.stopping_pods.mark(UID)
            assert await asked == "stopped"
            assert not removal.done()
            hang.release()
            assert await removal

    run(on_image_bench, test)


def test_a_missing_image_holds_nothing(on_image_bench):
    async def test(bench, pods) -> None:
        assert await remove(bench)
        assert isinstance(await pods.ensure(policy="Never"), MissingImage)
        assert bench.holds.pods() == frozenset()

    run(on_image_bench, test)
