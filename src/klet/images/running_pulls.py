"""Pulls that the runtime works on right now, and the image service that notes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from msgspec import Struct

from klet.aio.clock import Clock
from klet.cri.port import ImageService
from klet.wire import cri_v1_pb2 as cri


class RunningPull(Struct, frozen=True, kw_only=True):
    """One request to pull an image that has not been answered yet."""

    number: int
    """No two have the same."""
    image: str
    namespace: str
    pod: str
    since: datetime
    began: float
    """The same on the clock that never steps."""


class RunningPulls:
    """The pulls that are under way. Written by NotedImages only."""

    def __init__(self) -> None:
        self._pulls: dict[int, RunningPull] = {}
        self._number = 0

    def all(self) -> tuple[RunningPull, ...]:
        return tuple(self._pulls.values())

    @contextmanager
    def running(self, image: str, *, namespace: str, pod: str, clock: Clock) -> Iterator[None]:
        """Show a pull for the time of the block."""
        self._number += 1
        number = self._number
        self._pulls[number] = RunningPull(
            number=number,
            image=image,
            namespace=namespace,
            pod=pod,
            since=clock.now(),
            began=clock.monotonic(),
        )
        try:
            yield
        finally:
            del self._pulls[number]


class NotedImages:
    """The runtime's image service, which shows each pull on a board as long as it lasts."""

    def __init__(self, *, inner: ImageService, board: RunningPulls, clock: Clock) -> None:
        self._inner = inner
        self._board = board
        self._clock = clock

    async def list_images(self, request: cri.ListImagesRequest) -> cri.ListImagesResponse:
        return await self._inner.list_images(request)

    async def image_status(self, request: cri.ImageStatusRequest) -> cri.ImageStatusResponse:
        return await self._inner.image_status(request)

    async def pull_image(self, request: cri.PullImageRequest) -> cri.PullImageResponse:
        pod = request.sandbox_config.metadata
        with self._board.running(request.image.image, namespace=pod.namespace, pod=pod.name, clock=self._clock):
            return await self._inner.pull_image(request)

    async def remove_image(self, request: cri.RemoveImageRequest) -> cri.RemoveImageResponse:
        return await self._inner.remove_image(request)

    async def image_fs_info(self, request: cri.ImageFsInfoRequest) -> cri.ImageFsInfoResponse:
        return await self._inner.image_fs_info(request)
