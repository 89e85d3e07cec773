"""What the configuration says about pulls, and how much of their records is kept in memory. Pure."""

from typing import Final

from msgspec import Struct

from klet.images.pulled.verification import VerificationRules

_MOST_INTENTS: Final = 1024
_MOST_RECORDS: Final = 2000


class RecordLimits(Struct, frozen=True):
    """How many records are kept in memory; of intents the number is only what a metric compares with."""

    intents: int = _MOST_INTENTS
    records: int = _MOST_RECORDS


class ImageSettings(Struct, frozen=True, kw_only=True):
    """How images are pulled, and who may use them."""

    at_once: int | None = None
    """How many pulls run at a time; None: any number."""
    pull_qps: int = 0
    """Pulls a second; 0: any number."""
    pull_burst: int = 0
    rules: VerificationRules | None = None
    """None if the node does not check who uses an image (gate KubeletEnsureSecretPulledImages)."""
    limits: RecordLimits = RecordLimits()


def choose_pulls_at_once(*, is_serial: bool, most: int | None) -> int | None:
    """Return how many pulls may run at a time, by `serializeImagePulls` and `maxParallelImagePulls`."""
    return 1 if is_serial else most


def choose_limits(*, max_pods: int, most_pulls: int | None) -> RecordLimits:
    """Return upstream's sizes of its memory of intents and records."""
    return RecordLimits(
        intents=max(1, min(max(2 * max_pods, 2 * (most_pulls or 0)), _MOST_INTENTS)),
        records=max(1, min(5 * max_pods, _MOST_RECORDS)),
    )
