"""The schema of the agent's own API for images: `/klet/v1/images`, and the preview of image garbage collection.

The rules are those of `klet_v1`: fields are only added, with a default, and readers ignore what they do not know.
"""

from datetime import datetime
from typing import Final

from msgspec import Struct

IMAGES: Final = "/klet/v1/images"
IMAGE_GC: Final = f"{IMAGES}/gc"


class ImageUsage(Struct, frozen=True, kw_only=True, gc=False):
    """Who uses an image: a container that there is (running or ended), or a pod that is about to start one."""

    how: str
    """`container`, `volume` (an image volume), `sandbox`, or `starting` (the image is there, its container not yet)."""
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    running: bool = False


class NodeImage(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One image that the runtime has."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size_bytes: int = 0
    """As the runtime counts it; layers that images share are counted in each of them."""
    pinned: bool = False
    """The runtime wants it kept: it is never collected."""
    users: tuple[ImageUsage, ...] = ()
    first_detected: datetime
    """When this run of the agent saw it first."""
    last_used: datetime | None = None
    """When this run of the agent last saw it in use; None: never."""
    unused_since: datetime | None = None
    """None while it is in use. Otherwise when it was last in use, or else first detected."""


class NodeImageListing(Struct, frozen=True, kw_only=True):
    """`/klet/v1/images`: largest first. The answer is 503 with the reason as text if the runtime does not list them."""

    now: datetime
    """The agent's time, which the other instants are to be compared with."""
    images: tuple[NodeImage, ...] = ()


class ImageGcRules(Struct, frozen=True, kw_only=True, rename="camel"):
    """What image garbage collection is configured to do."""

    enabled: bool
    """Whether it runs every five minutes; if not, images are removed only when a pod would be evicted otherwise."""
    high_threshold_percent: int
    low_threshold_percent: int
    minimum_age_seconds: float
    maximum_age_seconds: float = 0.0
    """0: no image is removed for its age."""
    maximum_age_from: datetime | None = None
    """The age counts only from then on: an agent that has just started does not know what was used before."""


class ImageDisk(Struct, frozen=True, kw_only=True, rename="camel"):
    """The filesystem with the images."""

    capacity_bytes: int
    available_bytes: int
    used_percent: int
    """Rounded up, as it is compared with the thresholds."""


class ImageFate(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a collection would do with one image now, and why."""

    image: NodeImage
    removed: bool
    reason: str
    """Removed for `space` or `age`. Kept: `inUse`, `starting`, `pinned`, `tooYoung`, `enoughFreed` (those before it
    are enough), `belowThreshold` (there is no need)."""
    message: str = ""
    """The reason as a sentence."""


class DiskHolder(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something large on that filesystem which no collection of images frees."""

    kind: str
    """`image` (in use or pinned) or `writableLayer` (what a container has written)."""
    name: str
    """A name of the image, or `namespace/pod/container`."""
    size_bytes: int
    users: tuple[ImageUsage, ...] = ()


class ImageGcPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """`/klet/v1/images/gc`: what a collection would do now. Nothing is removed for the answer."""

    now: datetime
    rules: ImageGcRules
    disk: ImageDisk
    bytes_to_free: int = 0
    """0 below the high threshold."""
    bytes_freed: int = 0
    """By those that would go. The collection measures after each one and stops early if that is enough."""
    summary: str = ""
    """What would happen, in one sentence."""
    fates: tuple[ImageFate, ...] = ()
    """Every image: first those that would go, in their order, then the others."""
    holders: tuple[DiskHolder, ...] = ()
    """The largest first."""
