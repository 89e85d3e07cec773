"""What holds the disk when no image can be removed: images in use, and what containers have written. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from klet.images.board import KnownImage
from klet.model.foreign_text import shorten
from klet.model.images import ImageUse, ImageUseKind
from klet.model.runtime import ContainerId

MOST: Final = 5
"""How many are named."""
MOST_USERS: Final = 3
LONGEST_NAME: Final = 160
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class HeldSpace(Struct, frozen=True, kw_only=True):
    """An image that stays, or the writable layer of a container."""

    name: str
    size: int
    users: tuple[ImageUse, ...] = ()
    is_pinned: bool = False
    is_layer: bool = False

    def describe(self) -> str:
        """Return it as one short text."""
        name, size = shorten(self.name, LONGEST_NAME), format_size(self.size)
        if self.is_layer:
            return f"writable layer of {name}, {size}"
        users = list(dict.fromkeys(map(name_user, self.users)))
        if not users:
            return f"image {name}, {size}, pinned"
        more = f" and {len(users) - MOST_USERS} more" if len(users) > MOST_USERS else ""
        return f"image {name}, {size}, used by {', '.join(users[:MOST_USERS])}{more}"


def find_holders(images: Iterable[KnownImage], layers: Mapping[ContainerId, int]) -> tuple[HeldSpace, ...]:
    """Return the largest things that no collection removes; layers are the sizes of what containers have written."""
    held = [
        HeldSpace(name=known.image.name, size=known.image.size, users=known.users, is_pinned=known.image.pinned)
        for known in images
        if known.users or known.image.pinned
    ]
    containers = {
        use.container_id: use
        for known in images
        for use in known.users
        if use.kind is ImageUseKind.CONTAINER and use.container_id in layers
    }
    held += [
        HeldSpace(name=name_user(use), size=layers[ContainerId(id_)], users=(use,), is_layer=True)
        for id_, use in containers.items()
    ]
    return tuple(sorted((each for each in held if each.size > 0), key=lambda each: -each.size)[:MOST])


def name_user(use: ImageUse) -> str:
    """Return who uses an image, as people name it."""
    match use.kind:
        case ImageUseKind.SANDBOX:
            return "the sandboxes of pods"
        case ImageUseKind.STARTING:
            return f"{use.namespace}/{use.pod}, which is about to start"
        case ImageUseKind.CONTAINER | ImageUseKind.VOLUME:
            if not use.pod:
                return f"container {use.container or use.container_id}, which is of no pod"
            return f"{use.namespace}/{use.pod}/{use.container}"


def format_size(size: int) -> str:
    """Return a number of bytes as upstream's message has it."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
