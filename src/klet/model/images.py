"""The image of a container, as it was found or not found on the node."""

from dataclasses import dataclass, field
from datetime import datetime

from msgspec import Struct


class ImageUser(Struct, frozen=True):
    """The user an image asks for: a number, or a name that only the image can resolve."""

    uid: int | None = None
    name: str = ""


class PresentImage(Struct, frozen=True):
    """An image that containers can be created from, and the user it wants to run as."""

    ref: str
    user: ImageUser


@dataclass(frozen=True, slots=True)
class MissingImage:
    """Why there is no image, in the words of a waiting state."""

    reason: str
    message: str
    retry_at: datetime | None = field(default=None, compare=False)
    """When it may be pulled again, if that is known."""
