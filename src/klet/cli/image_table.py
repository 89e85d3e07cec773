"""The tables of `klet images` and `klet disk`. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from klet.api.klet_v1_images import DiskHolder, ImageFate, ImageGcPreview, ImageGcRules, ImageUsage, NodeImage
from klet.cli.durations import human_duration
from klet.cli.pod_table import NONE, render_table
from klet.model.pull_progress import describe_bytes

SHORT_ID = 12
"""Characters of an id that are shown, as other tools do."""


def image_table(images: Sequence[NodeImage], *, now: datetime, is_wide: bool) -> str:
    header = ["IMAGE", "SIZE", "USED BY", "UNUSED FOR", "PINNED"]
    rows = [_columns(image, now=now, is_wide=is_wide) for image in images]
    if is_wide:
        header += ["ID", "DIGEST"]
        for row, image in zip(rows, images, strict=True):
            row += [short_id(image.id), ",".join(each.partition("@")[2] for each in image.digests) or NONE]
    return render_table(header, rows)


def fate_table(fates: Sequence[ImageFate], *, now: datetime) -> str:
    """Return what a collection would do with each image, in its order."""
    rows = [
        [
            name_of(fate.image),
            describe_bytes(fate.image.size_bytes),
            _unused_for(fate.image, now=now),
            "remove" if fate.removed else "keep",
            fate.message or fate.reason,
        ]
        for fate in fates
    ]
    return render_table(["IMAGE", "SIZE", "UNUSED FOR", "WOULD", "WHY"], rows)


def holder_table(holders: Sequence[DiskHolder]) -> str:
    rows = [
        [holder.name, holder.kind, describe_bytes(holder.size_bytes), users_of(holder.users, is_wide=True)]
        for holder in holders
    ]
    return render_table(["HELD BY", "KIND", "SIZE", "USED BY"], rows)


def disk_lines(preview: ImageGcPreview) -> list[str]:
    """Return how full the disk is, and when images are removed."""
    disk = preview.disk
    used = disk.capacity_bytes - disk.available_bytes
    sizes = f"{describe_bytes(used)} of {describe_bytes(disk.capacity_bytes)}"
    free = f"{describe_bytes(disk.available_bytes)} free"
    return [f"Disk of the images: {disk.used_percent} % used, {sizes}, {free}.", _rules_line(preview.rules)]


def name_of(image: NodeImage) -> str:
    """Return a name by which it can be removed: its first tag, else a digest, else its id."""
    names = (*image.tags, *image.digests)
    more = f" (+{len(image.tags) - 1})" if len(image.tags) > 1 else ""
    return f"{names[0]}{more}" if names else short_id(image.id)


def users_of(users: Sequence[ImageUsage], *, is_wide: bool) -> str:
    """Return the pods that use an image; with `is_wide` each container."""
    names = list(dict.fromkeys(_name_of_user(user, is_wide=is_wide) for user in users))
    if is_wide:
        return ",".join(names) or NONE
    return f"{names[0]} (+{len(names) - 1})" if len(names) > 1 else "".join(names) or NONE


def short_id(text: str) -> str:
    return text.removeprefix("sha256:")[:SHORT_ID]


def _columns(image: NodeImage, *, now: datetime, is_wide: bool) -> list[str]:
    return [
        ",".join(image.tags) if is_wide and image.tags else name_of(image),
        describe_bytes(image.size_bytes),
        users_of(image.users, is_wide=is_wide),
        _unused_for(image, now=now),
        "yes" if image.pinned else "no",
    ]


def _name_of_user(user: ImageUsage, *, is_wide: bool) -> str:
    if user.how == "sandbox":
        return "sandboxes"
    parts = (user.namespace, user.pod, user.container if is_wide or not user.pod else "")
    return "/".join(filter(None, parts)) or user.how


def _unused_for(image: NodeImage, *, now: datetime) -> str:
    return NONE if image.unused_since is None else human_duration(now - image.unused_since)


def _rules_line(rules: ImageGcRules) -> str:
    space = (
        f"from {rules.high_threshold_percent} % on, unused images are removed until {rules.low_threshold_percent} % "
        "are left"
    )
    if not rules.enabled:
        return "Image garbage collection is off: images go only when a pod would be evicted otherwise."
    age = ""
    if rules.maximum_age_seconds:
        longest = human_duration(timedelta(seconds=rules.maximum_age_seconds))
        age = f"; images unused for {longest} are removed in any case"
    return f"Every five minutes, {space}{age}."
