"""How far a pull is, how fast it goes and how long it will take, from what the content store says. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from klet.cri.content import Ingest, StoredBlob, is_digest
from klet.model.pull_progress import PullStage

MOST_PARTS: Final = 1000
"""Blobs of one image."""
LARGEST_PART: Final = 1 << 50
"""Bytes of one blob."""
WINDOW: Final = 10.0
"""Seconds: a rate is that of the last ones."""
SHORTEST: Final = 0.5
"""Seconds; a rate over less time is noise."""
LONGEST_LEFT: Final = timedelta(days=7)
"""A longer time left is as good as none."""


class ImagePart(Struct, frozen=True):
    """A blob of an image: its configuration or a layer."""

    digest: str
    size: int


class PullReading(Struct, frozen=True, kw_only=True):
    """What is on the node of an image, at one look."""

    fetched: int
    total: int
    arrived: int
    """Of the bytes that are there, those that came since the pull began."""
    complete: frozenset[str]
    """Blobs that are there whole."""

    @property
    def stage(self) -> PullStage:
        return PullStage.UNPACKING if self.fetched >= self.total else PullStage.FETCHING


class Sample(Struct, frozen=True):
    """How many bytes a pull had fetched at a moment of the clock that never steps."""

    at: float
    arrived: int


class _Descriptor(Struct, frozen=True):
    digest: str = ""
    size: int = 0


class _Manifest(Struct, frozen=True):
    config: _Descriptor = _Descriptor()
    layers: tuple[_Descriptor, ...] = ()


def read_manifest(data: bytes) -> tuple[ImagePart, ...]:
    """Return what an image consists of, each blob once; nothing for what is no manifest of an image."""
    try:
        manifest = msgspec.json.decode(data, type=_Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    if len(manifest.layers) > MOST_PARTS:
        return ()
    parts: dict[str, ImagePart] = {}
    for each in (manifest.config, *manifest.layers):
        if not is_digest(each.digest) or not 0 <= each.size <= LARGEST_PART:
            return ()
        parts.setdefault(each.digest, ImagePart(each.digest, each.size))
    return tuple(parts.values())


def choose_manifest(
    manifests: Iterable[StoredBlob],
    parts: Mapping[str, Sequence[ImagePart]],
    ingests: Sequence[Ingest],
    *,
    digest: str,
    began: datetime,
) -> str | None:
    """Return the manifest that a pull fetches; None if it is not known yet, or if it could be several.

    `parts` has those of each manifest. A pull that names a digest fetches that one, unless it names an index.
    """
    known = [each for each in manifests if parts.get(each.digest)]
    if any(each.digest == digest for each in known):
        return digest
    fetched = {ingest.digest for ingest in ingests}
    # One that was there before may be meant too; it shows when one of its blobs is fetched.
    active = [each for each in known if any(part.digest in fetched for part in parts[each.digest])]
    new = [each for each in active or known if each.created >= began]
    candidates = active if len(active) == 1 else new
    return candidates[0].digest if len(candidates) == 1 else None


def measure(
    parts: Sequence[ImagePart],
    ingests: Sequence[Ingest],
    stored: Sequence[StoredBlob],
    *,
    before: PullReading | None,
    began: datetime,
) -> PullReading:
    """Return what is there. A blob that was whole at the last look stays so: it may be dropped once it is unpacked."""
    writing = {ingest.digest: ingest for ingest in ingests}
    there = {blob.digest: blob for blob in stored}
    complete = set(before.complete) if before is not None else set[str]()
    fetched, arrived = 0, 0
    for part in parts:
        blob, ingest = there.get(part.digest), writing.get(part.digest)
        if blob is not None or part.digest in complete:
            complete.add(part.digest)
            fetched += part.size
            arrived += part.size if blob is not None and blob.created >= began else 0
        elif ingest is not None:
            offset = min(ingest.offset, part.size)
            fetched += offset
            # Of an interrupted fetch that goes on, nobody knows how much is new.
            arrived += offset if ingest.began >= began else 0
    total = sum(part.size for part in parts)
    if before is not None:
        fetched = max(fetched, before.fetched)
        arrived = max(arrived, before.arrived + fetched - before.fetched)
    return PullReading(fetched=fetched, total=total, arrived=arrived, complete=frozenset(complete))


def compute_rate(samples: Sequence[Sample]) -> float | None:
    """Return bytes a second over the last seconds; `samples` begin with the pull. None if that is too short a time."""
    if not samples:
        return None
    newest = samples[-1]
    window = [sample for sample in samples if newest.at - sample.at <= WINDOW]
    # A single look is compared with the beginning, however long ago that is.
    oldest = window[0] if len(window) > 1 and newest.at - window[0].at >= SHORTEST else samples[0]
    passed = newest.at - oldest.at
    return max(0, newest.arrived - oldest.arrived) / passed if passed >= SHORTEST else None


def keep_samples(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return the samples that the next rate may need: the beginning, and the last seconds."""
    newest = samples[-1].at
    return (samples[0], *(sample for sample in samples[1:] if newest - sample.at <= WINDOW))


def compute_left(reading: PullReading, rate: float | None) -> timedelta | None:
    """Return how long the rest takes at this rate; None if that cannot be said."""
    missing = reading.total - reading.fetched
    if rate is None or rate < 1 or missing <= 0:
        return None
    seconds = missing / rate
    return timedelta(seconds=seconds) if seconds <= LONGEST_LEFT.total_seconds() else None
