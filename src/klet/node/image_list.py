"""The images that the node's status names: read from the runtime periodically, so that a status never waits for it."""

from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.cri.errors import CriError
from klet.model.unknown import Unknown
from klet.wire import cri_v1_pb2 as cri

EVERY: Final = timedelta(seconds=30)


class ImageRecord(Struct, frozen=True):
    """An image that the runtime holds."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    size: int = 0


class ImageListing(Protocol):
    """The part of the image service that is needed."""

    async def list_images(self, request: cri.ListImagesRequest) -> cri.ListImagesResponse: ...


class ImageList:
    """The images of the last listing; none until the first one. Written by its own loop only."""

    def __init__(self, *, images: ImageListing, clock: Clock) -> None:
        self._images = images
        self._clock = clock
        self._found: tuple[ImageRecord, ...] | Unknown = ()

    @property
    def found(self) -> tuple[ImageRecord, ...] | Unknown:
        return self._found

    async def run(self) -> None:
        while True:
            await self.refresh()
            await self._clock.sleep(EVERY)

    async def refresh(self) -> None:
        try:
            answer = await self._images.list_images(cri.ListImagesRequest())
        except CriError as error:
            self._found = Unknown(f"error getting image list: {error}")
            return
        self._found = tuple(
            ImageRecord(image.id, tuple(image.repo_digests), tuple(image.repo_tags), image.size)
            for image in answer.images
        )
