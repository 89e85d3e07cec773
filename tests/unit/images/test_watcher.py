"""Who uses which image, in the words of different runtimes."""

import asyncio

import pytest

from klet.aio.clock import LoopClock
from klet.cri.errors import Code, CriError, error_for
from klet.images.board import ImageBoard
from klet.images.holds import ImageHolds
from klet.images.watcher import LIST_EVERY, ImageWatcher, ImageWatchSettings
from klet.model.images import ImageKey, ImageUseKind
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxId
from klet.model.unknown import Unknown
from klet.pleg.cache import Reading, RuntimeCache
from klet.testing.builders import NOW
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

DOWN = error_for(Code.UNAVAILABLE, "connection refused")
GONE = error_for(Code.NOT_FOUND, "no such container")
IMAGE = cri.Image(id="sha256:a", repo_tags=["r:1"], repo_digests=["r@sha256:1"], size=5)
OTHER = cri.Image(id="sha256:b", repo_tags=["s:1"], size=7, pinned=True)


class ScriptedRuntime:
    """Has what a test gives it."""

    def __init__(self, *containers, images=(IMAGE, OTHER), mounts=(), details=""):
        self.containers = containers
        self.images = images
        self.mounts = mounts
        self.details = details
        self.error = None
        self.status_error = None
        self.asked = []

    async def list_images(self, _request):
        if self.error is not None:
            raise self.error
        return cri.ListImagesResponse(images=self.images)

    async def list_containers(self, _request):
        return cri.ListContainersResponse(containers=self.containers)

    async def container_status(self, request):
        self.asked.append(request.container_id)
        if self.status_error is not None:
            raise self.status_error
        mounts = [cri.Mount(container_path="/x"), *(cri.Mount(image=cri.ImageSpec(image=each)) for each in self.mounts)]
        return cri.ContainerStatusResponse(status=cri.ContainerStatus(mounts=mounts))

    async def status(self, _request):
        return cri.StatusResponse(info={"config": self.details} if self.details else {})


def container(**fields) -> cri.Container:
    labels = {"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default"}
    return cri.Container(id="c-1", metadata=cri.ContainerMetadata(name="main"), labels=labels, **fields)


def make_watcher(runtime, *, seen=None, by_handler=False, has_volumes=True):
    board = ImageBoard()
    watcher = ImageWatcher(
        images=runtime,
        runtime=runtime,
        seen=seen or RuntimeCache(),
        board=board,
        holds=ImageHolds(),
        settings=ImageWatchSettings(by_handler=by_handler, has_volumes=has_volumes),
        clock=LoopClock(epoch=EPOCH),
    )
    return watcher, board


async def look(runtime, **options) -> dict[ImageKey, list[ImageUseKind]]:
    watcher, _ = make_watcher(runtime, **options)
    return {known.image.key: [use.kind for use in known.users] for known in await watcher.look() if known.users}


A, B = ImageKey("sha256:a"), ImageKey("sha256:b")
CONTAINER, VOLUME, SANDBOX = ImageUseKind.CONTAINER, ImageUseKind.VOLUME, ImageUseKind.SANDBOX


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"image_ref": "sha256:a"}, {A: [CONTAINER]}, id="containerd: the reference is the id"),
        pytest.param({"image_ref": "r@sha256:1", "image_id": "sha256:a"}, {A: [CONTAINER]}, id="the id counts"),
        pytest.param({"image_ref": "r@sha256:1"}, {A: [CONTAINER]}, id="a digest"),
        pytest.param({"image_ref": "r:1"}, {A: [CONTAINER]}, id="a tag"),
        pytest.param({"image_ref": "sha256:unknown"}, {}, id="an image that is not listed"),
        pytest.param({"image_ref": "sha256:a", "state": cri.CONTAINER_EXITED}, {A: [CONTAINER]}, id="an ended one"),
        pytest.param({"image_ref": "sha256:a", "state": cri.CONTAINER_CREATED}, {A: [CONTAINER]}, id="a created one"),
        pytest.param({"image_ref": "sha256:a", "state": cri.CONTAINER_UNKNOWN}, {A: [CONTAINER]}, id="an unknown one"),
    ],
)
def test_a_container_uses_the_image_that_the_list_names(fields, expected):
    assert run_virtual(look(ScriptedRuntime(container(**fields)))) == expected


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        pytest.param('{"sandboxImage": "s:1"}', {B: [SANDBOX]}, id="by its tag"),
        pytest.param('{"sandboxImage": "other:1"}', {}, id="one that is not there"),
        pytest.param('{"sandboxImage": 5}', {}, id="no text"),
        pytest.param("{", {}, id="no JSON"),
        pytest.param('{"x":' * 100_000, {}, id="deeply nested"),
        pytest.param('{"sandboxImage": "s:1", "x": "' + "y" * (1 << 20) + '"}', {}, id="too long"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_the_image_of_sandboxes_is_in_use(details, expected):
    assert run_virtual(look(ScriptedRuntime(details=details))) == expected


def test_an_image_volume_is_in_use_by_any_of_its_names():
    runtime = ScriptedRuntime(container(image_ref="sha256:a"), mounts=("s:1", "unknown"))
    assert run_virtual(look(runtime)) == {A: [CONTAINER], B: [VOLUME]}


def test_without_the_gate_nobody_looks_for_image_volumes():
    runtime = ScriptedRuntime(container(image_ref="sha256:a"), mounts=("s:1",))
    assert run_virtual(look(runtime, has_volumes=False)) == {A: [CONTAINER]}
    assert runtime.asked == []


def test_mounts_that_the_pod_cache_knows_are_not_asked_for():
    seen = RuntimeCache()
    record = ContainerRecord(
        id=ContainerId("c-1"),
        sandbox_id=SandboxId("s-1"),
        name="main",
        state=RuntimeContainerState.RUNNING,
        created_at=NOW,
        image_volumes=frozenset({"sha256:b"}),
    )
    seen.put(Reading(PodRuntimeStatus(uid=PodUID("u-1"), containers=(record,)), read_at=0.0))
    runtime = ScriptedRuntime(container(image_ref="sha256:a"))
    assert run_virtual(look(runtime, seen=seen)) == {A: [CONTAINER], B: [VOLUME]}
    assert runtime.asked == []


def test_a_container_that_goes_while_it_is_asked_about_mounts_nothing():
    runtime = ScriptedRuntime(container(image_ref="sha256:a"))
    runtime.status_error = GONE
    assert run_virtual(look(runtime)) == {A: [CONTAINER]}


def test_mounts_that_cannot_be_read_end_the_look():
    runtime = ScriptedRuntime(container(image_ref="sha256:a"))
    runtime.status_error = DOWN
    with pytest.raises(CriError, match="connection refused"):
        run_virtual(look(runtime))


KATA = cri.Image(id="sha256:a", spec=cri.ImageSpec(runtime_handler="kata"))


def test_each_handler_may_have_images_of_its_own():
    used = container(image_ref="sha256:a", image=cri.ImageSpec(runtime_handler="kata"))
    images = (IMAGE, KATA)
    apart = run_virtual(look(ScriptedRuntime(used, images=images), by_handler=True))
    assert apart == {ImageKey("sha256:a", "kata"): [CONTAINER]}
    assert run_virtual(look(ScriptedRuntime(used, images=images))) == {A: [CONTAINER]}


def test_a_failed_listing_is_shown_and_the_next_one_clears_it():
    async def story():
        runtime = ScriptedRuntime()
        watcher, board = make_watcher(runtime)
        clock = LoopClock(epoch=EPOCH)
        runtime.error = DOWN
        async with asyncio.TaskGroup() as group:
            task = group.create_task(watcher.run())
            await clock.sleep(LIST_EVERY / 2)
            failed = board.found
            await clock.sleep(LIST_EVERY)
            again = board.found
            runtime.error = None
            await clock.sleep(LIST_EVERY)
            task.cancel()
        return failed, again, board.found

    failed, again, found = run_virtual(story())
    assert failed == again == Unknown(f"error getting image list: {DOWN}")
    assert [(each.id, each.size, each.pinned) for each in found] == [("sha256:a", 5, False), ("sha256:b", 7, True)]
