"""The image of a container, as it was found or not found on the node."""

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
