"""What `klet images` and `klet disk --gc-preview` show: the board, and the plan that a collection would carry out."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.api.klet_v1_images import (
    DiskHolder,
    ImageDisk,
    ImageFate,
    ImageGcPreview,
    ImageGcRules,
    ImageUsage,
    NodeImage,
    NodeImageListing,
)
from klet.images.board import KnownImage
from klet.images.disk_holders import HeldSpace, find_holders, format_size, name_user
from klet.images.gc import ImageDiskReader, ImageGc, as_disk_space, read_layers
from klet.images.gc_plan import ImageFateReason, ImageGcPlan, ImageGcPolicy, PlannedImage, plan_collection
from klet.images.watcher import ImageWatcher
from klet.model.images import ImageUse

_KEPT: Final = {
    ImageFateReason.PINNED: "kept: the runtime has pinned it",
    ImageFateReason.ENOUGH_FREED: "kept: enough is freed without it",
    ImageFateReason.BELOW_THRESHOLD: "kept: the disk has space enough",
}


class MonotonicNow:
    """One instant on both clocks: what the board has is shown as wall time."""

    def __init__(self, clock: Clock) -> None:
        self.wall = clock.now()
        self.monotonic = clock.monotonic()

    def as_wall(self, at: float) -> datetime:
        return self.wall - timedelta(seconds=self.monotonic - at)


class ImageViews:
    """Answers who uses which image, and what a collection would do: read from the runtime now, and nothing goes."""

    def __init__(self, *, watcher: ImageWatcher, gc: ImageGc, disk: ImageDiskReader, clock: Clock) -> None:
        self._watcher = watcher
        self._gc = gc
        self._disk = disk
        self._clock = clock

    async def images(self) -> NodeImageListing:
        """Return all images, the largest first. Raises KletError."""
        found = await self._watcher.look()
        now = MonotonicNow(self._clock)
        ordered = sorted(found, key=lambda known: (-known.image.size, known.image.name, known.image.id))
        return NodeImageListing(now=now.wall, images=tuple(_show(known, now) for known in ordered))

    async def preview(self) -> ImageGcPreview:
        """Return what a collection would do now, with the reason for each image. Raises KletError."""
        found = await self._watcher.look()
        space = as_disk_space(await self._disk.image_fs())
        now, policy = MonotonicNow(self._clock), self._gc.policy
        plan = plan_collection(found, policy, space, now=now.monotonic, began=self._gc.began)
        holders = find_holders(found, await read_layers(self._disk))
        return ImageGcPreview(
            now=now.wall,
            rules=_show_rules(policy, now.as_wall(self._gc.began + policy.max_age.total_seconds())),
            disk=ImageDisk(
                capacity_bytes=space.capacity, available_bytes=space.available, used_percent=space.used_percent
            ),
            bytes_to_free=plan.to_free,
            bytes_freed=plan.freed,
            summary=_summarize(plan, policy),
            fates=tuple(_show_fate(each, policy, now) for each in plan.images),
            holders=tuple(_show_holder(each) for each in holders),
        )


def _show(known: KnownImage, now: MonotonicNow) -> NodeImage:
    image, unused = known.image, known.unused_since
    return NodeImage(
        id=image.id,
        tags=image.tags,
        digests=image.digests,
        size_bytes=image.size,
        pinned=image.pinned,
        users=_show_users(known.users),
        first_detected=now.as_wall(known.first_detected),
        last_used=None if known.last_used is None else now.as_wall(known.last_used),
        unused_since=None if unused is None else now.as_wall(unused),
    )


def _show_users(users: Iterable[ImageUse]) -> tuple[ImageUsage, ...]:
    return tuple(
        ImageUsage(
            how=use.kind,
            namespace=use.namespace,
            pod=use.pod,
            uid=use.uid,
            container=use.container,
            running=use.is_running,
        )
        for use in users
    )


def _show_rules(policy: ImageGcPolicy, age_counts_from: datetime) -> ImageGcRules:
    return ImageGcRules(
        enabled=policy.is_periodic,
        high_threshold_percent=policy.high,
        low_threshold_percent=policy.low,
        minimum_age_seconds=policy.min_age.total_seconds(),
        maximum_age_seconds=policy.max_age.total_seconds(),
        maximum_age_from=age_counts_from if policy.max_age else None,
    )


def _show_fate(planned: PlannedImage, policy: ImageGcPolicy, now: MonotonicNow) -> ImageFate:
    return ImageFate(
        image=_show(planned.known, now),
        removed=planned.reason.is_removal,
        reason=planned.reason,
        message=_explain(planned, policy, now),
    )


def _explain(planned: PlannedImage, policy: ImageGcPolicy, now: MonotonicNow) -> str:
    known, reason = planned.known, planned.reason
    match reason:
        case ImageFateReason.SPACE | ImageFateReason.AGE:
            unused = known.first_detected if known.unused_since is None else known.unused_since
            since = f"not used for {_seconds(now.monotonic - unused)}"
            seen = since if known.last_used is not None else f"{since}, which is as long as the agent knows it"
            return f"removed to free disk space: {seen}" if reason is ImageFateReason.SPACE else f"removed: {seen}"
        case ImageFateReason.IN_USE | ImageFateReason.STARTING:
            return f"kept: used by {', '.join(dict.fromkeys(map(name_user, known.users)))}"
        case ImageFateReason.TOO_YOUNG:
            return f"kept: it is here for less than {_seconds(policy.min_age.total_seconds())}"
        case ImageFateReason.PINNED | ImageFateReason.ENOUGH_FREED | ImageFateReason.BELOW_THRESHOLD:
            return _KEPT[reason]


def _seconds(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _show_holder(held: HeldSpace) -> DiskHolder:
    kind = "writableLayer" if held.is_layer else "image"
    return DiskHolder(kind=kind, name=held.name, size_bytes=held.size, users=_show_users(held.users))


def _summarize(plan: ImageGcPlan, policy: ImageGcPolicy) -> str:
    space = plan.space
    full = f"{space.used_percent}% of {format_size(space.capacity)} is used"
    gone = [each for each in plan.images if each.reason.is_removal]
    removes = f"{len(gone)} image{'' if len(gone) == 1 else 's'} would go and free {format_size(plan.freed)}"
    if not policy.is_periodic:
        return f"{full}; no image is removed unless pods would be evicted (imageGCHighThresholdPercent 100)"
    if not plan.to_free:
        below = f"{full}, which is below {policy.high}%"
        return f"{below}; {removes}" if gone else f"{below}: no image would go"
    wanted = f"{full}, and {format_size(plan.to_free)} too much for {policy.low}%"
    freed = sum(each.known.image.size for each in gone if each.reason is ImageFateReason.SPACE)
    return f"{wanted}; {removes}" if freed >= plan.to_free else f"{wanted}; {removes}: not enough"
