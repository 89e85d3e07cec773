"""The images that the runtime has: since when, who uses them, when they were last used (upstream: image records).

One board for the node's status, for image garbage collection and for `klet images`. Instants are those of the
monotonic clock: an age is right whatever happens to the wall clock.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from klet.model.images import ImageKey, ImageRecord, ImageUse
from klet.model.unknown import Unknown


class KnownImage(Struct, frozen=True, kw_only=True):
    """An image of the runtime, and what this run of the agent has seen of it."""

    image: ImageRecord
    first_detected: float
    last_used: float | None = None
    """None: never."""
    users: tuple[ImageUse, ...] = ()
    """Those of the last look."""

    @property
    def unused_since(self) -> float | None:
        """None while it is in use."""
        if self.users:
            return None
        return self.first_detected if self.last_used is None else self.last_used


class ImageBoard:
    """What the last listings showed. Written by the ImageWatcher, and by image garbage collection, which removes."""

    def __init__(self) -> None:
        self._found: tuple[ImageRecord, ...] | Unknown = ()
        self._known: dict[ImageKey, KnownImage] = {}

    @property
    def found(self) -> tuple[ImageRecord, ...] | Unknown:
        """The images as the node's status shows them; none until the first listing."""
        return self._found

    def images(self) -> tuple[KnownImage, ...]:
        return tuple(self._known.values())

    def put_error(self, why: str) -> None:
        """Note that the images could not be listed. What is known of them stays."""
        self._found = Unknown(why)

    def put_list(self, records: Iterable[ImageRecord], *, at: float) -> None:
        """Store a listing; images that are not in it are forgotten."""
        known: dict[ImageKey, KnownImage] = {}
        for record in records:
            before = self._known.get(record.key)
            if before is None:
                before = KnownImage(image=record, first_detected=at)
            elif before.image != record:
                before = replace(before, image=record)
            known[record.key] = before
        self._known = known
        self._found = tuple(each.image for each in known.values())

    def put_uses(self, uses: Mapping[ImageKey, tuple[ImageUse, ...]], *, at: float) -> None:
        """Store who uses each image; those that are not named are not in use."""
        for key, known in self._known.items():
            users = uses.get(key, ())
            if users:
                self._known[key] = replace(known, users=users, last_used=at)
            elif known.users:
                self._known[key] = replace(known, users=())

    def remove(self, key: ImageKey) -> None:
        """Forget an image that was removed."""
        if self._known.pop(key, None) is not None and not isinstance(self._found, Unknown):
            self._found = tuple(each.image for each in self._known.values())
