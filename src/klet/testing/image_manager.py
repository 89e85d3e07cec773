"""An image manager for tests, wired as the agent wires it."""

from klet.aio.clock import Clock
from klet.cri.port import ImageService
from klet.images.manager import ImageManager, RegistryLogins
from klet.images.metrics import ImageMetrics, register_images
from klet.images.present_images import NodeImages
from klet.images.pull_backoff import PullBackoff
from klet.images.pull_queue import PullQueue
from klet.images.pulled.open_pull import NoPullRecords, PullRecorder
from klet.images.pulled.records import PulledImages
from klet.images.pulled.store import PullRecordStore
from klet.images.pulled.verification import build_rules
from klet.images.puller import ImagePuller
from klet.images.registry_pulls import RegistryPulls
from klet.kube.throttle import TokenBucket
from klet.metrics import MetricRegistry
from klet.model.causes import CauseRecorder
from klet.model.pull_times import PullTimes
from klet.model.stopping_pods import StoppingPods

DEFAULT_POLICY = "NeverVerifyPreloadedImages"


def build_image_manager(
    images: ImageService,
    logins: RegistryLogins,
    *,
    recorder: CauseRecorder,
    clock: Clock,
    backoff: PullBackoff | None = None,
    stopping_pods: StoppingPods | None = None,
    queue: PullQueue | None = None,
    limit: TokenBucket | None = None,
    records: PullRecorder | None = None,
    metrics: ImageMetrics | None = None,
    node_images: NodeImages | None = None,
) -> ImageManager:
    """Return one that pulls any number of images at once and records nothing, unless the test says otherwise."""
    metrics = metrics or register_images(MetricRegistry())
    records = records or NoPullRecords()
    node_images = node_images or NodeImages(images=images, clock=clock)
    puller = ImagePuller(
        registry=RegistryPulls(
            images=images,
            queue=queue or PullQueue(at_once=None),
            limit=limit,
            times=PullTimes(),
            recorder=recorder,
            clock=clock,
        ),
        node_images=node_images,
        records=records,
        backoff=backoff or PullBackoff(),
        recorder=recorder,
        metrics=metrics,
        clock=clock,
    )
    return ImageManager(
        node_images=node_images,
        logins=logins,
        records=records,
        puller=puller,
        stopping_pods=stopping_pods or StoppingPods(),
        recorder=recorder,
        metrics=metrics,
    )


def build_pulled_images(
    store: PullRecordStore,
    images: ImageService,
    *,
    clock: Clock,
    policy: str = DEFAULT_POLICY,
    allowlist: tuple[str, ...] = (),
    metrics: ImageMetrics | None = None,
) -> PulledImages:
    """Return the records of pulled images, in the given store."""
    metrics = metrics or register_images(MetricRegistry())
    return PulledImages(
        store=store,
        images=images,
        rules=build_rules(policy, allowlist),
        checks=metrics.checks,
        clock=clock,
    )
