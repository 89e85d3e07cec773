"""Says how far the pulls are that are under way: reads the content store when somebody asks, and never otherwise."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.cri.content import ContainerdContent, Ingest
from klet.cri.errors import CriError
from klet.images.names import ImageNameError, digest_of, registry_host, repository_of
from klet.images.pull_estimate import (
    ImagePart,
    PullReading,
    Sample,
    choose_manifest,
    compute_left,
    compute_rate,
    keep_samples,
    measure,
    read_manifest,
)
from klet.images.running_pulls import RunningPull, RunningPulls
from klet.model.pull_progress import PullProgress

logger = logging.getLogger(__name__)

FRESH: Final = 0.25
"""Seconds that an answer is good for: many who look cost no more than one."""
MOST_MEASURED: Final = 64
"""Pulls that are measured at a look; of more, only the time is said."""
MOST_CANDIDATES: Final = 256
"""Manifests of one repository that are read to find the one that is pulled."""


class _Measured(Struct):
    """What is known of one pull."""

    parts: tuple[ImagePart, ...]
    samples: tuple[Sample, ...]
    reading: PullReading | None = None


class PullMeter:
    """Measures pulls. It remembers those alone that were under way at the last look."""

    def __init__(self, *, pulls: RunningPulls, content: ContainerdContent | None, clock: Clock) -> None:
        self._pulls = pulls
        self._content = content
        """None where the runtime has none: then pulls have a time only."""
        self._clock = clock
        self._measured: dict[int, _Measured] = {}
        self._manifests: dict[str, tuple[ImagePart, ...]] = {}
        self._looked: float | None = None
        self._turn = asyncio.Lock()

    async def look(self) -> tuple[PullProgress, ...]:
        """Return every pull that is under way, the oldest first."""
        if self._content is not None and self._pulls.all():
            async with self._turn:
                now = self._clock.monotonic()
                if self._looked is None or now - self._looked >= FRESH:
                    await self._measure(self._content, self._pulls.all()[:MOST_MEASURED])
                    self._looked = self._clock.monotonic()
        running = self._pulls.all()
        self._forget({pull.number for pull in running})
        return tuple(self._progress_of(pull) for pull in running)

    async def _measure(self, content: ContainerdContent, pulls: Sequence[RunningPull]) -> None:
        try:
            ingests = await content.ingests()
            for pull in pulls:
                if pull.number not in self._measured and (parts := await self._find_parts(content, pull, ingests)):
                    self._measured[pull.number] = _Measured(parts, (Sample(pull.began, 0),))
            await self._read_blobs(content, pulls, ingests)
        except CriError as error:
            # A runtime without a content store, or one that is busy: what was read before is still shown.
            logger.debug("Content store not read", extra={"error": str(error)})

    async def _find_parts(
        self, content: ContainerdContent, pull: RunningPull, ingests: Sequence[Ingest]
    ) -> tuple[ImagePart, ...]:
        """Return what the image consists of; nothing as long as its manifest is not there or not certain."""
        try:
            repository = repository_of(pull.image)
        except ImageNameError:
            return ()
        path = repository.partition("/")[2]
        found = [each for each in await content.manifests(registry_host(repository)) if path in each.repositories]
        candidates = sorted(found, key=lambda each: each.created)[-MOST_CANDIDATES:]
        for each in candidates:
            if each.digest not in self._manifests:
                self._manifests[each.digest] = read_manifest(await content.read(each.digest))
        chosen = choose_manifest(candidates, self._manifests, ingests, digest=digest_of(pull.image), began=pull.since)
        return self._manifests[chosen] if chosen is not None else ()

    async def _read_blobs(
        self, content: ContainerdContent, pulls: Sequence[RunningPull], ingests: Sequence[Ingest]
    ) -> None:
        measured = [(pull, self._measured[pull.number]) for pull in pulls if pull.number in self._measured]
        wanted = {
            part.digest
            for _, known in measured
            for part in known.parts
            if known.reading is None or part.digest not in known.reading.complete
        }
        stored = await content.blobs(sorted(wanted))
        now = self._clock.monotonic()
        for pull, known in measured:
            known.reading = measure(known.parts, ingests, stored, before=known.reading, began=pull.since)
            known.samples = keep_samples((*known.samples, Sample(now, known.reading.arrived)))

    def _progress_of(self, pull: RunningPull) -> PullProgress:
        elapsed = timedelta(seconds=self._clock.monotonic() - pull.began)
        known = self._measured.get(pull.number)
        reading = known.reading if known is not None else None
        if known is None or reading is None:
            return PullProgress(
                image=pull.image, namespace=pull.namespace, pod=pull.pod, since=pull.since, elapsed=elapsed
            )
        rate = compute_rate(known.samples)
        return PullProgress(
            image=pull.image,
            namespace=pull.namespace,
            pod=pull.pod,
            since=pull.since,
            elapsed=elapsed,
            stage=reading.stage,
            fetched=reading.fetched,
            total=reading.total,
            rate=rate,
            left=compute_left(reading, rate),
        )

    def _forget(self, running: Collection[int]) -> None:
        self._measured = {number: known for number, known in self._measured.items() if number in running}
        if not running:
            self._manifests.clear()
