"""Images that pods are about to use: image garbage collection does not remove them.

Upstream has no such rule: an image can be removed after the kubelet has found it and before a container uses it. Here
a pod holds an image from the moment that it is ready for it until the runtime has a container that was created later,
or the pod is gone. A pod that finds an image which is just being removed waits, and looks again.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from klet.model.images import ImageUse
from klet.model.pods import PodUID

LONGEST: Final = timedelta(hours=1)
"""A pod that has not asked for an image again for so long does not wait for it any more."""

_HoldKey: TypeAlias = tuple[str, str, str]
"""Image, pod and container."""


class ContainerUse(Struct, frozen=True):
    """A container that uses an image, as the runtime lists it."""

    image: str
    use: ImageUse
    created_at: datetime


class _Hold(Struct, frozen=True):
    use: ImageUse
    since: datetime
    until: float
    """On the monotonic clock."""


class ImageHolds:
    """Board: which pods hold which images, and which images are being removed.

    Written by HeldImages, by the ImageWatcher, which sees containers, and by image garbage collection.
    """

    def __init__(self) -> None:
        self._holds: dict[_HoldKey, _Hold] = {}
        self._removing: dict[str, asyncio.Event] = {}
        self._watches: list[set[str]] = []

    @contextmanager
    def watch(self) -> Iterator[set[str]]:
        """Yield the images whose removal ends while the block runs."""
        removed = set[str]()
        self._watches.append(removed)
        try:
            yield removed
        finally:
            # By identity: two sets with the same images are equal.
            self._watches = [each for each in self._watches if each is not removed]

    def hold(self, image: str, use: ImageUse, *, since: datetime, at: float) -> bool:
        """Keep an image for a pod; return False if it is just being removed."""
        if image in self._removing:
            return False
        key = (image, use.uid, use.container)
        self._holds[key] = _Hold(use, since, at + LONGEST.total_seconds())
        return True

    async def until_removed(self, image: str) -> None:
        """Return when an image is not being removed any more."""
        while (removal := self._removing.get(image)) is not None:
            await removal.wait()

    @contextmanager
    def removing(self, image: str) -> Iterator[bool]:
        """Keep pods from taking an image while the block removes it; False: a pod holds it, so it must stay."""
        if image in self._removing or any(held == image for held, _, _ in self._holds):
            yield False
            return
        self._removing[image] = asyncio.Event()
        try:
            yield True
        finally:
            for removed in self._watches:
                removed.add(image)
            self._removing.pop(image).set()

    def uses(self) -> Mapping[str, tuple[ImageUse, ...]]:
        """Return who holds each image that is held."""
        found: dict[str, tuple[ImageUse, ...]] = {}
        for (image, _, _), hold in self._holds.items():
            found[image] = (*found.get(image, ()), hold.use)
        return found

    def settle(self, containers: Iterable[ContainerUse], *, at: float) -> None:
        """Release what pods have made containers of since, and what they have not asked for in a long time."""
        newest: dict[_HoldKey, datetime] = {}
        for each in containers:
            # The image of a volume is held for the pod, and for no container.
            for container in (each.use.container, ""):
                key = (each.image, each.use.uid, container)
                newest[key] = max(each.created_at, newest.get(key, each.created_at))
        self._holds = {
            key: hold
            for key, hold in self._holds.items()
            if at < hold.until and not ((created := newest.get(key)) is not None and created >= hold.since)
        }

    def forget(self, uid: PodUID) -> None:
        """Release all that a pod holds."""
        self._holds = {key: hold for key, hold in self._holds.items() if key[1] != uid}

    def pods(self) -> frozenset[PodUID]:
        return frozenset(PodUID(uid) for _, uid, _ in self._holds)
