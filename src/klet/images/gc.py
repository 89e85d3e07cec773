"""Removes images that nothing uses (image garbage collection): for their age, and when their disk is nearly full."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.aio.tasks import run_periodically
from klet.api.stats import RuntimeStats
from klet.api.times import Duration
from klet.cri.errors import CriError
from klet.errors import KletError
from klet.images.board import ImageBoard, KnownImage
from klet.images.disk_holders import find_holders, format_size
from klet.images.gc_plan import (
    ALL,
    DiskSpace,
    ImageFateReason,
    ImageGcPolicy,
    compute_bytes_to_free,
    plan_for_age,
    plan_for_space,
)
from klet.images.holds import ImageHolds
from klet.images.watcher import ImageWatcher
from klet.metrics import Counter
from klet.model.causes import CauseRecorder, Measurement
from klet.model.error_text import join_errors
from klet.model.images import ImageKey
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import ContainerId
from klet.model.tracing import Tracer
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER: Final = "images.gc"
SCOPE: Final = "k8s.io/kubernetes/pkg/kubelet/images"
PERIOD: Final = timedelta(minutes=5)


class ImageGcFailed(KletError):
    """A collection could not do what it should; the text is upstream's."""


class ImageDelete(Protocol):
    """The part of the image service that removes."""

    async def remove_image(self, request: cri.RemoveImageRequest) -> cri.RemoveImageResponse: ...


class ImageDiskReader(Protocol):
    """Knows the filesystem with the images."""

    async def image_fs(self) -> RuntimeStats:
        """Return what the runtime and the filesystem say of it; raises KletError."""
        ...

    async def layer_sizes(self) -> Mapping[ContainerId, int]:
        """Return what each container has written into its root filesystem; raises KletError."""
        ...


class PulledImageRecords(Protocol):
    """Records of pulled images."""

    async def prune(self, *, remaining: Collection[str], before: datetime) -> None:
        """Remove the records of other images that are older than an instant."""
        ...


class ImageRemover:
    """Removes one image, unless a pod is about to use it."""

    def __init__(
        self,
        *,
        images: ImageDelete,
        board: ImageBoard,
        holds: ImageHolds,
        forget: Callable[[str], None],
        recorder: CauseRecorder,
        collected: Counter,
        clock: Clock,
    ) -> None:
        self._images = images
        self._board = board
        self._holds = holds
        self._forget = forget
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._collected = collected
        self._clock = clock

    async def remove(self, known: KnownImage, *, reason: ImageFateReason) -> bool:
        """Remove it; return False if a pod has asked for it since the plan was made. Raises CriError."""
        image = known.image
        with self._holds.removing(image.id) as is_free:
            if not is_free:
                return False
            spec = cri.ImageSpec(image=image.id, runtime_handler=image.handler)
            await self._images.remove_image(cri.RemoveImageRequest(image=spec))
            self._board.remove(image.key)
            self._forget(image.id)
        self._collected.add(reason)
        self._record(known, reason)
        return True

    def _record(self, known: KnownImage, reason: ImageFateReason) -> None:
        image = known.image
        unused = self._clock.monotonic() - (known.first_detected if known.last_used is None else known.last_used)
        why = "to free disk space" if reason is ImageFateReason.SPACE else "because it has not been used for long"
        self._decisions.for_node().record(
            Reason.IMAGE_COLLECTED,
            f"Removed image {image.name} ({format_size(image.size)}) {why}",
            measurements={"image": image.name, "id": image.id, "bytes": image.size, "unusedSeconds": round(unused)},
        )


class _Removals(Struct):
    """What removals came to."""

    freed: int = 0
    gone: set[ImageKey] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


class ImageGc:
    """Collects images every five minutes, and at once when a pod would be evicted otherwise."""

    def __init__(
        self,
        *,
        watcher: ImageWatcher,
        remover: ImageRemover,
        records: PulledImageRecords | None,
        disk: ImageDiskReader,
        recorder: CauseRecorder,
        clock: Clock,
        policy: ImageGcPolicy,
        tracer: Tracer | None = None,
    ) -> None:
        self._watcher = watcher
        self._remover = remover
        self._records = records
        self._disk = disk
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._policy = policy
        self._tracer = tracer
        self._began = clock.monotonic()
        self._has_failed = False

    @property
    def policy(self) -> ImageGcPolicy:
        return self._policy

    @property
    def began(self) -> float:
        """Since when images are watched (monotonic): the maximum age counts from then on."""
        return self._began

    async def run(self) -> None:
        await run_periodically(self._pass, every=PERIOD, clock=self._clock, name="image GC")

    async def _pass(self) -> None:
        """Run one collection. The first failure is only logged: the runtime may not have measured anything yet."""
        try:
            await self.collect()
        except KletError as error:
            logger.warning("Image garbage collection failed", extra={"error": str(error)})
            if self._has_failed:
                following = f"try again in {Duration.of(PERIOD).wire()}"
                self._decisions.for_node().record(Reason.IMAGE_GC_FAILED, str(error), next_step=following)
            self._has_failed = True
        else:
            self._has_failed = False

    async def collect(self) -> None:
        """Remove old images, and others if the disk is nearly full. Raises KletError."""
        if self._tracer is None:
            await self._collect()
            return
        with self._tracer.span("Images/GarbageCollect", scope=SCOPE):
            await self._collect()

    async def _collect(self) -> None:
        began, now = self._clock.now(), self._clock.monotonic()
        images = await self._watcher.look()
        done = await self._remove_old(images, now)
        space = await self._read_space()
        to_free = compute_bytes_to_free(space, self._policy)
        left = [known for known in images if known.image.key not in done.gone]
        for_space = await self._free_space(left, now, to_free)
        done.gone |= for_space.gone
        await self._prune_records(images, done, before=began)
        if for_space.freed < to_free and not await self._is_at_low_mark():
            await self._report_full(space, for_space, to_free)

    async def delete_unused(self) -> None:
        """Remove every image that may go, to save pods from eviction (DeleteUnusedImages). Raises KletError."""
        began, now = self._clock.now(), self._clock.monotonic()
        images = await self._watcher.look()
        await self._prune_records(images, await self._free_space(images, now, ALL), before=began)

    async def _remove_old(self, images: Sequence[KnownImage], now: float) -> _Removals:
        done = _Removals()
        for known in plan_for_age(images, self._policy, now=now, began=self._began):
            await self._remove(known, ImageFateReason.AGE, done)
        if done.errors:
            age = Duration.of(self._policy.max_age).wire()
            raise ImageGcFailed(
                f"wanted to free images older than {age}, encountered errors in image deletion: "
                f"{join_errors(done.errors)}"
            )
        return done

    async def _free_space(self, images: Sequence[KnownImage], now: float, to_free: int) -> _Removals:
        """Remove what the plan names until enough is freed.

        The plan counts what the runtime says of each image. What is unpacked takes more, and layers may be shared, so
        the disk is measured after each removal: nothing more goes once the low threshold is reached.
        """
        plan = plan_for_space(images, self._policy, now=now, to_free=to_free)
        done = _Removals()
        for known in (*plan.chosen, *plan.spare):
            if done.freed >= to_free:
                break
            is_gone = await self._remove(known, ImageFateReason.SPACE, done)
            if is_gone and to_free != ALL and await self._is_at_low_mark():
                break
        if done.errors:
            raise ImageGcFailed(
                f"wanted to free {to_free} bytes, but freed {done.freed} bytes space with errors in image deletion: "
                f"{join_errors(done.errors)}"
            )
        return done

    async def _remove(self, known: KnownImage, reason: ImageFateReason, done: _Removals) -> bool:
        try:
            if not await self._remover.remove(known, reason=reason):
                return False
        except CriError as error:
            done.errors.append(str(error))
            return False
        done.freed += known.image.size
        done.gone.add(known.image.key)
        return True

    async def _prune_records(self, images: Sequence[KnownImage], done: _Removals, *, before: datetime) -> None:
        """Drop the records of images that are gone, no matter what removed them and when.

        Never before the image: an image without its record would be anybody's. An agent that is killed in between
        leaves a record, which the next collection drops. What was pulled since this one began has a newer record;
        records have whole seconds.
        """
        there = frozenset(known.image.id for known in images if known.image.key not in done.gone)
        # A runtime that shows nothing at all may just have started; records that are dropped then do not come back.
        if images and self._records is not None:
            await self._records.prune(remaining=there, before=before.replace(microsecond=0))

    async def _read_space(self) -> DiskSpace:
        space = as_disk_space(await self._disk.image_fs())
        if not space.capacity:
            message = "invalid capacity 0 on image filesystem"
            self._decisions.for_node().record(Reason.INVALID_DISK_CAPACITY, message)
            raise ImageGcFailed(message)
        return space

    async def _is_at_low_mark(self) -> bool:
        try:
            space = as_disk_space(await self._disk.image_fs())
        except KletError as error:
            logger.debug("The disk with the images is not measured", extra={"error": str(error)})
            return False
        return space.available >= space.capacity * (100 - self._policy.low) // 100

    async def _report_full(self, space: DiskSpace, done: _Removals, to_free: int) -> None:
        """Record that the disk stays full, and what holds it. Raises ImageGcFailed with the same text."""
        message = (
            f"Insufficient free disk space on the node's image filesystem ({space.used_percent}% of "
            f"{format_size(space.capacity)} used). Failed to free sufficient space by deleting unused images (freed "
            f"{done.freed} bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or "
            "other data."
        )
        measurements: dict[str, Measurement] = {
            "usedPercent": space.used_percent,
            "bytesToFree": to_free,
            "bytesFreed": done.freed,
        }
        holders = find_holders(self._watcher.known(), await read_layers(self._disk))
        if holders:
            measurements["heldBy"] = "; ".join(each.describe() for each in holders)
        self._decisions.for_node().record(
            Reason.FREE_DISK_SPACE_FAILED,
            message,
            measurements=measurements,
            next_step=f"try again in {Duration.of(PERIOD).wire()}",
        )
        raise ImageGcFailed(message)


def as_disk_space(stats: RuntimeStats) -> DiskSpace:
    """Return what is known of the filesystem with the images; what is not known is 0, as upstream."""
    capacity = available = 0
    if stats.image_fs is not None:
        capacity = stats.image_fs.capacity_bytes or 0
        available = stats.image_fs.available_bytes or 0
    return DiskSpace(capacity, min(available, capacity))


async def read_layers(disk: ImageDiskReader) -> Mapping[ContainerId, int]:
    """Return the sizes of writable layers; none if they are not known."""
    try:
        return await disk.layer_sizes()
    except KletError as error:
        logger.debug("Writable layers are not measured", extra={"error": str(error)})
        return {}
