"""Which image is on the node under a name, and for which sandbox one is wanted."""

from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.cri.port import ImageService
from klet.model.images import ImageUser, PresentImage
from klet.wire import cri_v1_pb2 as cri

SEEN_FOR: Final = timedelta(seconds=1)
"""How long an image that was there still is: pods that start together often have the same."""


class WantedImage(Struct, frozen=True):
    """An image as the runtime is asked for it, and the sandbox that it is pulled for."""

    asked: str
    """As the pod names it; records, logins and messages go by this."""
    spec: cri.ImageSpec
    sandbox: cri.PodSandboxConfig

    @property
    def key(self) -> tuple[str, str]:
        """What identifies an image: a runtime may keep one for each of its handlers."""
        return self.spec.image, self.spec.runtime_handler


class _Seen(Struct, frozen=True):
    image: cri.Image
    until: float


class NodeImages:
    """Asks the runtime for images, and remembers for a moment those that are there."""

    def __init__(self, *, images: ImageService, clock: Clock) -> None:
        self._images = images
        self._clock = clock
        self._seen: dict[tuple[str, str], _Seen] = {}

    async def find(self, wanted: WantedImage) -> cri.Image | None:
        """Return the image, as it was seen lately or is now; raises CriError."""
        now = self._clock.monotonic()
        self._seen = {each: seen for each, seen in self._seen.items() if now < seen.until}
        seen = self._seen.get(wanted.key)
        return await self.look(wanted) if seen is None else seen.image

    async def look(self, wanted: WantedImage) -> cri.Image | None:
        """Return the image as it is now; raises CriError."""
        asked = self._clock.monotonic()
        answer = await self._images.image_status(cri.ImageStatusRequest(image=wanted.spec))
        if not answer.image.id:
            return None
        self._seen[wanted.key] = _Seen(answer.image, asked + SEEN_FOR.total_seconds())
        return answer.image

    def forget(self, image: str) -> None:
        """Forget an image that was removed, by its id."""
        self._seen = {key: seen for key, seen in self._seen.items() if seen.image.id != image}


def as_present(image: cri.Image) -> PresentImage:
    user = ImageUser(image.uid.value if image.HasField("uid") else None, image.username)
    return PresentImage(image.id, user)
