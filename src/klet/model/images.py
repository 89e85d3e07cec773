"""Images: one as a container found it or did not find it, and all that the runtime has with those who use them."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class ImageUser(Struct, frozen=True):
    """The user an image asks for: a number, or a name that only the image can resolve."""

    uid: int | None = None
    name: str = ""


class PresentImage(Struct, frozen=True):
    """An image that containers can be created from, and the user it wants to run as."""

    ref: str
    user: ImageUser


class MissingImage(Struct, frozen=True, eq=False):
    """Why there is no image, in the words of a waiting state."""

    reason: str
    message: str
    retry_at: datetime | None = None
    """When it may be pulled again, if that is known."""

    def __eq__(self, other: object) -> bool:
        """Compare without the time of the next pull: the same error at another time is equal."""
        return isinstance(other, MissingImage) and (self.reason, self.message) == (other.reason, other.message)

    def __hash__(self) -> int:
        return hash((self.reason, self.message))


class ImageKey(NamedTuple):
    """What identifies an image: a runtime may keep one for each of its handlers (gate RuntimeClassInImageCriApi)."""

    id: str
    handler: str = ""


class ImageRecord(Struct, frozen=True):
    """An image that the runtime has."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    size: int = 0
    pinned: bool = False
    handler: str = ""

    @property
    def key(self) -> ImageKey:
        return ImageKey(self.id, self.handler)

    @property
    def name(self) -> str:
        """Return the name that people know it by."""
        return (*self.tags, *self.digests, self.id)[0]


class ImageUseKind(StrEnum):
    """How an image is used."""

    CONTAINER = "container"
    VOLUME = "volume"
    """A container mounts it as an image volume."""
    SANDBOX = "sandbox"
    """The runtime makes sandboxes of it."""
    STARTING = "starting"
    """It was made ready for a pod, whose container is not created yet."""


class ImageUse(Struct, frozen=True, kw_only=True):
    """Who uses an image. A container counts until it is removed, however long ago it has ended."""

    kind: ImageUseKind
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    container_id: str = ""
    is_running: bool = False
