"""What the agent saves for its next run (`klet-memory.json`), because the runtime does not have it."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct, field

from klet.api.pod import PodStatus
from klet.model.pods import PodUID


class CrashDelay(Struct, frozen=True, kw_only=True):
    """How long a container waits after its next end. Another image or other resources are another container."""

    uid: PodUID
    container: str
    image: str
    resources: str
    delay: timedelta
    counted_at: datetime


class PullDelay(Struct, frozen=True, kw_only=True):
    """How long a pod waits after its last try to pull an image, and why that failed; without a reason it did not."""

    uid: PodUID
    image: str
    delay: timedelta
    counted_at: datetime
    reason: str
    message: str


class SavedState(Struct, frozen=True, kw_only=True):
    """What one run of the agent saves for the next."""

    statuses: Mapping[PodUID, PodStatus] = field(default_factory=dict)
    """As they were last reported."""
    delays: tuple[CrashDelay, ...] = ()
    pulls: tuple[PullDelay, ...] = ()
