"""Looks periodically at the images that the runtime has, and at who uses them (upstream: image cache, detectImages)."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.cri.errors import CriError, CriNotFound
from klet.images.board import ImageBoard, KnownImage
from klet.images.holds import ContainerUse, ImageHolds
from klet.images.sandbox_image import parse_sandbox_image
from klet.model.cri_labels import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID
from klet.model.images import ImageKey, ImageRecord, ImageUse, ImageUseKind
from klet.model.roles import PodsInRuntime
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

LIST_EVERY: Final = timedelta(seconds=30)
"""How often images are listed, for the node's status."""
LISTS_PER_LOOK: Final = 10
"""With every tenth listing, so every five minutes, users are looked for, too."""


class ImageLister(Protocol):
    """The part of the image service that lists."""

    async def list_images(self, request: cri.ListImagesRequest) -> cri.ListImagesResponse: ...


class ImageUserLister(Protocol):
    """The part of the runtime that knows what images are used for."""

    async def list_containers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse: ...

    async def container_status(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse: ...

    async def status(self, request: cri.StatusRequest) -> cri.StatusResponse: ...


class ImageWatchSettings(Struct, frozen=True, kw_only=True):
    """What distinguishes images, and where they are used."""

    by_handler: bool = False
    """Gate RuntimeClassInImageCriApi: each runtime handler has images of its own."""
    has_volumes: bool = True
    """Gate ImageVolume."""


class ImageWatcher:
    """Writes the ImageBoard."""

    def __init__(
        self,
        *,
        images: ImageLister,
        runtime: ImageUserLister,
        seen: PodsInRuntime,
        board: ImageBoard,
        holds: ImageHolds,
        settings: ImageWatchSettings,
        clock: Clock,
    ) -> None:
        self._images = images
        self._runtime = runtime
        self._seen = seen
        self._board = board
        self._holds = holds
        self._settings = settings
        self._clock = clock
        self._looking = asyncio.Lock()
        self._mounted: dict[str, frozenset[str]] = {}
        """The images that each container mounts: that never changes."""
        self._logged = ""

    async def run(self) -> None:
        while True:
            await self._try_to_look()
            for _ in range(LISTS_PER_LOOK - 1):
                await self._clock.sleep(LIST_EVERY)
                await self.refresh()
            await self._clock.sleep(LIST_EVERY)

    async def refresh(self) -> None:
        """List the images. A failure is noted on the board."""
        async with self._looking:
            try:
                await self._list()
            except CriError as error:
                self._board.put_error(f"error getting image list: {error}")

    async def look(self) -> tuple[KnownImage, ...]:
        """List the images and look for their users; return what is known of them now. Raises CriError."""
        async with self._looking:
            records = await self._list()
            # After the images: a container that is created meanwhile must count.
            uses = await self._find_uses(records)
            self._board.put_uses(uses, at=self._clock.monotonic())
            return self._board.images()

    def known(self) -> tuple[KnownImage, ...]:
        """Return what the last look showed."""
        return self._board.images()

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except CriError as error:
            self._board.put_error(f"error getting image list: {error}")
            if str(error) != self._logged:
                logger.info("Failed to monitor images", extra={"error": str(error)})
            self._logged = str(error)
        else:
            self._logged = ""

    async def _list(self) -> tuple[ImageRecord, ...]:
        answer = await self._images.list_images(cri.ListImagesRequest())
        records = tuple(map(self._as_record, answer.images))
        self._board.put_list(records, at=self._clock.monotonic())
        return records

    def _as_record(self, image: cri.Image) -> ImageRecord:
        return ImageRecord(
            image.id,
            tuple(image.repo_digests),
            tuple(image.repo_tags),
            image.size,
            pinned=image.pinned,
            handler=image.spec.runtime_handler if self._settings.by_handler else "",
        )

    async def _find_uses(self, records: Iterable[ImageRecord]) -> Mapping[ImageKey, tuple[ImageUse, ...]]:
        ids = dict(_names(records))
        answer = await self._runtime.list_containers(cri.ListContainersRequest())
        await self._learn_mounts(answer.containers)
        uses: dict[ImageKey, tuple[ImageUse, ...]] = {}
        in_containers: list[ContainerUse] = []

        def add(key: ImageKey, use: ImageUse, created_at: int) -> None:
            uses[key] = (*uses.get(key, ()), use)
            in_containers.append(ContainerUse(key.id, use, _instant(created_at)))

        for each in answer.containers:
            handler = each.image.runtime_handler if self._settings.by_handler else ""
            name = each.image_id or each.image_ref
            add(ImageKey(ids.get(name, name), handler), _use_of(each, ImageUseKind.CONTAINER), each.created_at)
            for mounted in self._mounted.get(each.id, ()):
                key = ImageKey(ids.get(mounted, mounted), handler)
                add(key, _use_of(each, ImageUseKind.VOLUME), each.created_at)
        self._holds.settle(in_containers, at=self._clock.monotonic())
        held = self._holds.uses()
        sandboxes = ids.get(await self._sandbox_image())
        for record in records:
            others = held.get(record.id, ())
            if record.id == sandboxes:
                others = (*others, ImageUse(kind=ImageUseKind.SANDBOX))
            if others:
                uses[record.key] = (*uses.get(record.key, ()), *others)
        return uses

    async def _learn_mounts(self, containers: Iterable[cri.Container]) -> None:
        """Find out which images each container mounts: from the pod cache, or else from the runtime, once."""
        if not self._settings.has_volumes:
            return
        known: dict[str, frozenset[str] | None] = {
            record.id: record.image_volumes for pod in self._seen.pods().values() for record in pod.containers
        }
        mounted: dict[str, frozenset[str]] = {}
        for container in containers:
            images = self._mounted.get(container.id)
            if images is None:
                images = known.get(container.id)
            mounted[container.id] = await self._ask_mounts(container.id) if images is None else images
        self._mounted = mounted

    async def _ask_mounts(self, container: str) -> frozenset[str]:
        try:
            answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container))
        except CriNotFound:
            return frozenset()  # removed since it was listed
        return frozenset(mount.image.image for mount in answer.status.mounts if mount.image.image)

    async def _sandbox_image(self) -> str:
        """Return the image that the runtime makes sandboxes of; older runtimes do not pin it."""
        return parse_sandbox_image(await self._runtime.status(cri.StatusRequest(verbose=True)))


def _names(records: Iterable[ImageRecord]) -> Iterator[tuple[str, str]]:
    """Yield each name of each image with its id; runtimes do not agree which of them a container shows."""
    for record in records:
        for name in (*record.tags, *record.digests):
            yield name, record.id
    for record in records:
        yield record.id, record.id


def _use_of(container: cri.Container, kind: ImageUseKind) -> ImageUse:
    return ImageUse(
        kind=kind,
        namespace=container.labels.get(POD_NAMESPACE, ""),
        pod=container.labels.get(POD_NAME, ""),
        uid=container.labels.get(POD_UID, ""),
        container=container.labels.get(CONTAINER_NAME, container.metadata.name),
        container_id=container.id,
        is_running=container.state == cri.CONTAINER_RUNNING,
    )


def _instant(nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
