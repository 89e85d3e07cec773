"""Image garbage collection, wired: who looks at images, who removes them, and how pods hold theirs."""

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.images import ImageParts
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.images.gc import ImageGc, ImageRemover
from klet.images.held import HeldImages
from klet.images.metrics import register_image_gc
from klet.images.views import ImageViews
from klet.images.watcher import ImageWatcher, ImageWatchSettings
from klet.model.roles import Part
from klet.stats.disk import NodeDisk


class ImageCollection(Struct, frozen=True, kw_only=True):
    """What looks at images and removes those that nothing uses."""

    ensurer: HeldImages
    """The image manager as pods see it."""
    views: ImageViews
    parts: tuple[Part, ...]
    """What runs as soon as the runtime has answered."""


def build_image_collection(
    ports: Ports, settings: AgentSettings, boards: Boards, images: ImageParts, disk: NodeDisk
) -> ImageCollection:
    """Build image garbage collection beside the image manager."""
    watcher = ImageWatcher(
        images=ports.images,
        runtime=ports.runtime,
        seen=boards.cache,
        board=boards.images,
        holds=boards.image_holds,
        settings=ImageWatchSettings(
            by_handler=settings.sandbox.names_image_handlers, has_volumes=settings.has_image_volumes
        ),
        clock=ports.clock,
    )
    remover = ImageRemover(
        images=ports.images,
        board=boards.images,
        holds=boards.image_holds,
        forget=images.forget,
        recorder=ports.recorder,
        collected=register_image_gc(boards.metrics),
        clock=ports.clock,
    )
    gc = ImageGc(
        watcher=watcher,
        remover=remover,
        records=images.records,
        disk=disk,
        recorder=ports.recorder,
        clock=ports.clock,
        policy=settings.image_gc,
        tracer=ports.tracer,
    )
    return ImageCollection(
        ensurer=HeldImages(
            images=images.manager, holds=boards.image_holds, stopping_pods=boards.stopping_pods, clock=ports.clock
        ),
        views=ImageViews(watcher=watcher, gc=gc, disk=disk, clock=ports.clock),
        parts=(watcher, gc) if settings.image_gc.is_periodic else (watcher,),
    )
