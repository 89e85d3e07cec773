"""Which images may go, in which order, and how many of them (image garbage collection). Pure.

`klet disk --gc-preview` shows the plan that the collection carries out: both call these functions.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.images.board import KnownImage
from klet.model.images import ImageUseKind

ALL: Final = (1 << 63) - 1
"""Bytes to free where everything that may go goes, as upstream writes it."""


class ImageGcPolicy(Struct, frozen=True, kw_only=True):
    """When images are collected, and which of them not yet."""

    high: int = 85
    """`imageGCHighThresholdPercent`; 100 switches the collection off, unless there is a maximum age."""
    low: int = 80
    min_age: timedelta = timedelta(minutes=2)
    max_age: timedelta = timedelta()
    """Zero: no image goes for its age."""

    @property
    def is_periodic(self) -> bool:
        """Whether there is anything to do before a pod would be evicted for want of disk space."""
        return self.high != 100 or bool(self.max_age)


class DiskSpace(Struct, frozen=True):
    """The filesystem with the images. A runtime may report more available than there is; that is cut."""

    capacity: int
    available: int

    @property
    def used_percent(self) -> int:
        """Rounded up, as upstream does."""
        return 100 - self.available * 100 // self.capacity if self.capacity else 100

    def grown(self, freed: int) -> "DiskSpace":
        """Return the filesystem after so many bytes were freed."""
        return DiskSpace(self.capacity, min(self.available + freed, self.capacity))


class ImageFateReason(StrEnum):
    """Why an image goes, or stays."""

    SPACE = "space"
    AGE = "age"
    IN_USE = "inUse"
    STARTING = "starting"
    PINNED = "pinned"
    TOO_YOUNG = "tooYoung"
    ENOUGH_FREED = "enoughFreed"
    BELOW_THRESHOLD = "belowThreshold"

    @property
    def is_removal(self) -> bool:
        return self in {ImageFateReason.SPACE, ImageFateReason.AGE}


class PlannedImage(Struct, frozen=True):
    """What becomes of one image."""

    known: KnownImage
    reason: ImageFateReason


class SpacePlan(Struct, frozen=True, kw_only=True):
    """Images that go for space, in their order."""

    chosen: tuple[KnownImage, ...] = ()
    spare: tuple[KnownImage, ...] = ()
    """Those after them: they go only if one of the chosen cannot be removed."""

    @property
    def freed(self) -> int:
        return sum(each.image.size for each in self.chosen)


class ImageGcPlan(Struct, frozen=True, kw_only=True):
    """A whole collection: first images go for their age, then for space."""

    images: tuple[PlannedImage, ...]
    """First those that go, in their order, then the others."""
    space: DiskSpace
    """Before it."""
    to_free: int = 0
    """What has to go for space; 0 below the high threshold."""

    @property
    def freed(self) -> int:
        return sum(each.known.image.size for each in self.images if each.reason.is_removal)


def plan_for_age(
    images: Iterable[KnownImage], policy: ImageGcPolicy, *, now: float, began: float
) -> tuple[KnownImage, ...]:
    """Return the images that go for their age.

    An agent that has just started does not know what was used before, so nothing goes until it has run for that long.
    An image that it has never seen in use goes then, as upstream's; but not before the minimum age, which upstream
    does not ask here: it may have been pulled just now.
    """
    age = policy.max_age.total_seconds()
    if not age or now - began <= age:
        return ()
    return tuple(
        known
        for known in _candidates(images)
        if (known.last_used is None or now - known.last_used > age) and not _is_young(known, policy, now)
    )


def compute_bytes_to_free(space: DiskSpace, policy: ImageGcPolicy) -> int:
    """Return how much has to be freed to come down to the low threshold; 0 below the high one."""
    if not policy.is_periodic or space.used_percent < policy.high:
        return 0
    return max(1, space.capacity * (100 - policy.low) // 100 - space.available)


def plan_for_space(images: Iterable[KnownImage], policy: ImageGcPolicy, *, now: float, to_free: int) -> SpacePlan:
    """Return the images that go until so many bytes are freed: those that were last used longest ago first."""
    candidates = [known for known in _candidates(images) if not _is_young(known, policy, now)]
    freed = number = 0
    while number < len(candidates) and freed < to_free:
        freed += candidates[number].image.size
        number += 1
    return SpacePlan(chosen=tuple(candidates[:number]), spare=tuple(candidates[number:]))


def plan_collection(
    images: Sequence[KnownImage], policy: ImageGcPolicy, space: DiskSpace, *, now: float, began: float
) -> ImageGcPlan:
    """Return what a collection does now, if each removal frees what the runtime says the image takes."""
    old = plan_for_age(images, policy, now=now, began=began)
    gone = {known.image.key for known in old}
    left = [known for known in images if known.image.key not in gone]
    to_free = compute_bytes_to_free(space.grown(sum(known.image.size for known in old)), policy)
    plan = plan_for_space(left, policy, now=now, to_free=to_free)
    chosen = {known.image.key for known in plan.chosen}
    kept = (known for known in left if known.image.key not in chosen)
    return ImageGcPlan(
        images=(
            *(PlannedImage(known, ImageFateReason.AGE) for known in old),
            *(PlannedImage(known, ImageFateReason.SPACE) for known in plan.chosen),
            *(PlannedImage(known, _why_kept(known, policy, now=now, to_free=to_free)) for known in kept),
        ),
        space=space,
        to_free=to_free,
    )


def _why_kept(known: KnownImage, policy: ImageGcPolicy, *, now: float, to_free: int) -> ImageFateReason:
    if known.users:
        is_starting = all(use.kind is ImageUseKind.STARTING for use in known.users)
        return ImageFateReason.STARTING if is_starting else ImageFateReason.IN_USE
    if known.image.pinned:
        return ImageFateReason.PINNED
    if not to_free:
        return ImageFateReason.BELOW_THRESHOLD
    return ImageFateReason.TOO_YOUNG if _is_young(known, policy, now) else ImageFateReason.ENOUGH_FREED


def _candidates(images: Iterable[KnownImage]) -> list[KnownImage]:
    """Return what may go, in the order of its going: what was never used counts as used before everything else.

    The id decides at last: runtimes list in any order, and the preview must name what goes.
    """
    free = [known for known in images if not known.users and not known.image.pinned]
    return sorted(
        free,
        key=lambda known: (known.last_used is not None, known.last_used or 0.0, known.first_detected, known.image.key),
    )


def _is_young(known: KnownImage, policy: ImageGcPolicy, now: float) -> bool:
    return now - known.first_detected < policy.min_age.total_seconds()
