"""The image manager, wired: logins, the queue of pulls, the records of pulled images."""

from collections.abc import Callable

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.images.manager import ImageManager
from klet.images.metrics import ImageMetrics, register_images, register_pull_queue, register_pulled_images
from klet.images.present_images import NodeImages
from klet.images.pull_secrets import PullSecrets
from klet.images.pulled.open_pull import NoPullRecords
from klet.images.pulled.records import PulledImages
from klet.images.pulled.store import PullRecordStore
from klet.images.puller import ImagePuller
from klet.images.registry_pulls import RegistryPulls
from klet.images.running_pulls import NotedImages
from klet.kube.throttle import TokenBucket
from klet.model.roles import Part


class ImageParts(Struct, frozen=True, kw_only=True):
    """What gets images onto the node."""

    manager: ImageManager
    forget: Callable[[str], None]
    """Takes the id of an image that was removed."""
    pull_secrets: PullSecrets
    records: PulledImages | None
    """None if the node does not check who uses an image."""
    parts: tuple[Part, ...]
    """What runs as soon as the runtime has answered."""


def build_images(ports: Ports, settings: AgentSettings, boards: Boards) -> ImageParts:
    """Build the image manager and what it needs."""
    metrics = register_images(boards.metrics)
    register_pull_queue(boards.metrics, boards.pull_queue)
    pull_secrets = PullSecrets(secrets=ports.volumes.objects, node=ports.node_logins, providers=ports.provider_logins)
    node_images = NodeImages(images=ports.images, clock=ports.clock)
    records = _build_records(ports, settings, boards, metrics)
    recorder = records or NoPullRecords()
    puller = ImagePuller(
        registry=RegistryPulls(
            images=NotedImages(inner=ports.images, board=boards.running_pulls, clock=ports.clock),
            queue=boards.pull_queue,
            limit=_build_limit(ports, settings),
            times=boards.pull_times,
            recorder=ports.recorder,
            clock=ports.clock,
        ),
        node_images=node_images,
        records=recorder,
        backoff=boards.pulls,
        recorder=ports.recorder,
        metrics=metrics,
        clock=ports.clock,
    )
    manager = ImageManager(
        node_images=node_images,
        logins=pull_secrets,
        records=recorder,
        puller=puller,
        stopping_pods=boards.stopping_pods,
        recorder=ports.recorder,
        metrics=metrics,
    )
    return ImageParts(
        manager=manager,
        forget=node_images.forget,
        pull_secrets=pull_secrets,
        records=records,
        parts=() if records is None else (records,),
    )


def _build_limit(ports: Ports, settings: AgentSettings) -> TokenBucket | None:
    images = settings.images
    if images.pull_qps <= 0:
        return None
    return TokenBucket(rate=images.pull_qps, burst=images.pull_burst, clock=ports.clock)


def _build_records(ports: Ports, settings: AgentSettings, boards: Boards, metrics: ImageMetrics) -> PulledImages | None:
    rules, limits = settings.images.rules, settings.images.limits
    if rules is None:
        return None
    store = PullRecordStore(files=ports.pull_files, most_cached=limits.records)
    records = PulledImages(store=store, images=ports.images, rules=rules, checks=metrics.checks, clock=ports.clock)
    register_pulled_images(boards.metrics, store, records.pulls_in_flight, limits)
    return records
