import asyncio

import pytest

from klet.aio.clock import LoopClock
from klet.cri.errors import Code, CriError, CriNotFound, Unavailable
from klet.stats.sandbox_images import (
    LONGEST_ANSWER,
    LONGEST_IMAGE,
    MOST_AT_ONCE,
    PATIENCE,
    REST,
    SandboxImages,
    parse_image,
)
from klet.testing.clock import ManualClock
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

DETAILS = '{"pid":7,"image":"pause:1","runtimeSpec":{"image":"another"}}'


class Sandboxes:
    """A runtime that knows details of sandboxes; those with an error raise it."""

    def __init__(self, **errors):
        self.errors = errors
        self.asked = []

    async def pod_sandbox_status(self, request):
        assert request.verbose
        self.asked.append(request.pod_sandbox_id)
        if (error := self.errors.get(request.pod_sandbox_id)) is not None:
            raise error
        return pb.PodSandboxStatusResponse(info={"info": DETAILS})


async def test_each_sandbox_is_asked_about_once():
    runtime = Sandboxes()
    images = SandboxImages(runtime=runtime, clock=ManualClock())
    assert await images.read(["a", "b"]) == {"a": "pause:1", "b": "pause:1"}
    assert await images.read(["a", "b", "c"]) == {"a": "pause:1", "b": "pause:1", "c": "pause:1"}
    assert runtime.asked == ["a", "b", "c"]


async def test_one_that_is_gone_is_forgotten():
    images = SandboxImages(runtime=Sandboxes(), clock=ManualClock())
    await images.read(["a", "b"])
    assert await images.read(["b"]) == {"b": "pause:1"}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(CriNotFound(Code.NOT_FOUND, "gone"), id="it was removed"),
        pytest.param(CriError(Code.INTERNAL, "no task"), id="the runtime fails on it"),
    ],
)
async def test_one_that_cannot_be_asked_about_is_not_asked_about_again(error):
    runtime = Sandboxes(a=error)
    images = SandboxImages(runtime=runtime, clock=ManualClock())
    assert await images.read(["a", "b"]) == {"a": "", "b": "pause:1"}
    await images.read(["a", "b"])
    assert runtime.asked == ["a", "b"]


async def test_a_runtime_that_does_not_answer_is_left_alone_for_a_while():
    runtime, clock = Sandboxes(a=Unavailable(Code.UNAVAILABLE, "down")), ManualClock()
    images = SandboxImages(runtime=runtime, clock=clock)
    assert await images.read(["a", "b"]) == {}
    runtime.errors.clear()
    assert await images.read(["a", "b"]) == {}
    assert runtime.asked == ["a"]
    clock.advance(REST)
    assert await images.read(["a", "b"]) == {"a": "pause:1", "b": "pause:1"}


def test_a_runtime_that_hangs_delays_a_snapshot_by_little():
    class Hanging(Sandboxes):
        async def pod_sandbox_status(self, request):
            if request.pod_sandbox_id == "b":
                await asyncio.get_running_loop().create_future()
            return await super().pod_sandbox_status(request)

    async def story():
        clock = LoopClock(epoch=EPOCH)
        images = SandboxImages(runtime=Hanging(), clock=clock)
        assert await images.read(["a", "b"]) == {"a": "pause:1"}
        assert clock.now() - EPOCH == PATIENCE
        await images.read(["a", "b"])
        await images.read(["a", "b"])
        assert clock.now() - EPOCH == 2 * PATIENCE

    run_virtual(story())


async def test_a_full_node_is_asked_about_in_parts():
    runtime = Sandboxes()
    images = SandboxImages(runtime=runtime, clock=ManualClock())
    sandboxes = [str(number) for number in range(MOST_AT_ONCE + 1)]
    assert len(await images.read(sandboxes)) == MOST_AT_ONCE
    assert len(await images.read(sandboxes)) == MOST_AT_ONCE + 1
    assert len(runtime.asked) == MOST_AT_ONCE + 1


@pytest.mark.parametrize(
    ("details", "image"),
    [
        pytest.param(DETAILS, "pause:1", id="the image of the sandbox, not of what is below"),
        pytest.param("", "", id="no details"),
        pytest.param('{"pid":7}', "", id="details without an image"),
        pytest.param('{"image":7}', "", id="an image that is no text"),
        pytest.param('["image"]', "", id="no object"),
        pytest.param('{"image":"%s"}' % ("x" * (LONGEST_IMAGE + 1)), "", id="a name that is too long"),
        pytest.param(f"{' ' * LONGEST_ANSWER}{DETAILS}", "", id="details that are too long"),
    ],
)
def test_what_is_read_from_the_details(details, image):
    assert parse_image(details) == image
