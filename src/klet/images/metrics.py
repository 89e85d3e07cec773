"""Metrics of images: what containers ask for, how long pulls take, and the records of them."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from klet.images.pull_queue import PullQueue
from klet.images.pulled.files import PullDirectory
from klet.images.pulled.store import PullRecordStore
from klet.images.pulled.verification import Check
from klet.images.settings import RecordLimits
from klet.metrics import Counter, Histogram, Label, MetricRegistry, Reading

_MB: Final = 1024 * 1024
_GB: Final = 1024 * _MB
_SIZES: Final = (
    (10 * _MB, "0-10MB"),
    (100 * _MB, "10MB-100MB"),
    (500 * _MB, "100MB-500MB"),
    (1 * _GB, "500MB-1GB"),
    (5 * _GB, "1GB-5GB"),
    (10 * _GB, "5GB-10GB"),
    (20 * _GB, "10GB-20GB"),
    (30 * _GB, "20GB-30GB"),
    (40 * _GB, "30GB-40GB"),
    (60 * _GB, "40GB-60GB"),
    (100 * _GB, "60GB-100GB"),
)
_LARGEST: Final = "GT100GB"
_UNKNOWN: Final = "N/A"
_PULL_BOUNDS: Final = (1, 5, 10, 20, 30, 60, 180, 300, 600, 900, 1200, 1800, 2700, 3600)
_WORDS: Final = {True: "true", False: "false", None: "unknown"}
_ANSWERS: Final = frozenset(_WORDS.values())


class ImageMetrics(Struct, frozen=True, kw_only=True):
    """Images that containers asked for, pulls, and checks of pods that use an image without one."""

    requests: Counter
    pulls: Histogram
    checks: Counter

    def note_request(self, policy: str, *, is_present: bool | None, needs_pull: bool | None) -> None:
        self.requests.add(policy.lower(), _WORDS[is_present], _WORDS[needs_pull])


def register_images(registry: MetricRegistry) -> ImageMetrics:
    return ImageMetrics(
        requests=registry.counter(
            "kubelet_image_manager_ensure_image_requests_total",
            "Images that containers asked for, by pull policy, and whether they were there and had to be pulled.",
            (
                Label("pull_policy", frozenset({"always", "ifnotpresent", "never"})),
                Label("present_locally", _ANSWERS),
                Label("pull_required", _ANSWERS),
            ),
        ),
        pulls=registry.histogram(
            "kubelet_image_pull_duration_seconds",
            "How long pulls took that succeeded, with the wait for their turn, by the size of the image.",
            _PULL_BOUNDS,
            (Label("image_size_in_bytes", frozenset({_UNKNOWN, _LARGEST, *(name for _, name in _SIZES)})),),
        ),
        checks=registry.counter(
            "kubelet_imagemanager_image_mustpull_checks_total",
            "Checks whether a pod must pull an image that is there, by their outcome.",
            (Label("result", frozenset(Check)),),
        ),
    )


def register_image_gc(registry: MetricRegistry) -> Counter:
    """Return the counter of images that were collected, by why."""
    return registry.counter(
        "kubelet_image_garbage_collected_total",
        "Images that garbage collection has removed, for their age or to free disk space.",
        (Label("reason", frozenset({"age", "space"})),),
    )


def register_pull_queue(registry: MetricRegistry, queue: PullQueue) -> None:
    """Show how many pulls run and wait."""
    registry.computed(
        "klet_image_pulls",
        "Image pulls of pods: those that run, and those that wait for their turn.",
        lambda: {("running",): len(queue.running()), ("waiting",): len(queue.waiting())},
        (Label("state", frozenset({"running", "waiting"})),),
        promise=None,
    )


def register_pulled_images(
    registry: MetricRegistry, store: PullRecordStore, in_flight: Callable[[], int], limits: RecordLimits
) -> None:
    """Show how many intents and records of pulled images there are, and how full their memory is."""
    for name, about, read in (
        ("ondisk_pullintents", "Intents to pull on disk.", lambda: store.count(PullDirectory.PULLING)),
        ("ondisk_pulledrecords", "Records of pulled images on disk.", lambda: store.count(PullDirectory.PULLED)),
        ("inmemory_pullintents_usage_percent", "How full the memory of intents to pull is.",
         lambda: 100 * in_flight() / limits.intents),
        ("inmemory_pulledrecords_usage_percent", "How full the memory of records of pulled images is.",
         lambda: 100 * store.cached() / limits.records),
    ):  # fmt: skip
        registry.computed(f"kubelet_imagemanager_{name}", about, _number(read))


def _number(read: Callable[[], float]) -> Callable[[], Reading]:
    return lambda: {(): read()}


def size_label(size: int) -> str:
    """Return the range that the size of an image is in."""
    if size <= 0:
        return _UNKNOWN
    index = bisect_left(_SIZES, size, key=lambda each: each[0])
    return _SIZES[index][1] if index < len(_SIZES) else _LARGEST
