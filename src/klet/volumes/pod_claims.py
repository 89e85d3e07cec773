"""Looks up the claims of pods at the API server, each on its own (volume manager: the populator's claims).

A node may only read claims and volumes one by one, so nothing is watched: a claim that is not bound yet is looked up
again with each sync of its pod. A claim that has led to a volume is looked up again only if that can grow.
"""

import logging
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.api.claim import PersistentVolumeClaim
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.foreign_text import shorten
from klet.model.pods import PodUID, uid_of
from klet.volumes.claims import ClaimUse, build_spec, check_claim, check_name, check_volume
from klet.volumes.spec import VolumeSpec

logger = logging.getLogger(__name__)

_LONGEST_ERROR: Final = 1024
FRESH: Final = timedelta(seconds=10)
"""A claim that was looked up less than this ago is not looked up again to see whether it has grown."""


class ClaimReader(Protocol):
    """Reads claims and the volumes that they are bound to."""

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        """Return a claim as it is now; raises KletError."""
        ...

    async def persistent_volume(self, name: str) -> PersistentVolume:
        """Return a volume as it is now; raises KletError."""
        ...


class ClaimKey(NamedTuple):
    """A volume of a pod that stands for a claim."""

    uid: PodUID
    volume: str


class ClaimedVolume(Struct):
    """What is known of one of them."""

    pod: Pod
    allocation: PodAllocation
    volume: Volume
    use: ClaimUse
    spec: VolumeSpec | None = None
    """What it leads to, once that is known."""
    size: Quantity | None = None
    """What the status of the claim says."""
    looked_up_at: float = float("-inf")
    """On the monotonic clock."""
    error: str = ""
    """Why the last lookup led to nothing; empty while one is due or under way."""


class PodClaims:
    """The claims of pods: looked up, or why not."""

    def __init__(self, *, reader: ClaimReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._claims: dict[PodUID, dict[str, ClaimedVolume]] = {}
        self._queue = WorkQueue[ClaimKey](clock=clock)

    def want(self, pod: Pod, allocation: PodAllocation, volume: Volume, use: ClaimUse) -> ClaimedVolume:
        """Return what is known of a claim. If it has to be looked up, that begins with this call."""
        key = ClaimKey(uid_of(pod), volume.name)
        claims = self._claims.setdefault(key.uid, {})
        known = claims.get(key.volume)
        if known is None:
            known = claims[key.volume] = ClaimedVolume(pod, allocation, volume, use)
            self._queue.add(key)
        else:
            known.pod, known.allocation, known.volume, known.use = pod, allocation, volume, use
            if known.error:
                known.error = ""
                self._queue.add(key)
        return known

    def refresh(self, uid: PodUID, volume: str) -> None:
        """Look a claim up again that has led to a volume: it may have grown."""
        known = self._claims.get(uid, {}).get(volume)
        is_due = known is not None and self._clock.monotonic() - known.looked_up_at >= FRESH.total_seconds()
        if is_due:
            self._queue.add(ClaimKey(uid, volume))

    async def next(self) -> ClaimKey:
        """Return the next claim to look up; the caller hands it to `look_up`."""
        return await self._queue.get()

    async def look_up(self, key: ClaimKey) -> ClaimedVolume | None:
        """Look a claim up; None if its pod has gone meanwhile. What has gone wrong is kept for `errors`."""
        try:
            known = self._claims.get(key.uid, {}).get(key.volume)
            if known is None:
                return None
            known.looked_up_at = self._clock.monotonic()
            try:
                known.spec = await self._resolve(known)
            except KletError as error:
                self._note(known, shorten(str(error), _LONGEST_ERROR) or type(error).__name__)
            except Exception as error:
                logger.exception("A claim could not be looked up", extra={"uid": key.uid, "volume": key.volume})
                self._note(known, shorten(f"{type(error).__name__}: {error}", _LONGEST_ERROR))
            return known if self._claims.get(key.uid, {}).get(key.volume) is known else None
        finally:
            self._queue.done(key)

    def is_pending(self, uid: PodUID) -> bool:
        """Return whether a claim of a pod is being looked up."""
        return any(known.spec is None and not known.error for known in self._claims.get(uid, {}).values())

    def errors(self, uid: PodUID) -> tuple[str, ...]:
        """Return what has gone wrong with claims of a pod since they were last wanted."""
        return tuple(known.error for known in self._claims.get(uid, {}).values() if known.error)

    def forget_pod(self, uid: PodUID) -> None:
        for name in self._claims.pop(uid, {}):
            self._queue.forget(ClaimKey(uid, name))

    def _note(self, known: ClaimedVolume, error: str) -> None:
        if known.spec is None:
            known.error = error
        else:
            # The pod has it. Upstream forgets this error, too, as nothing waits for it.
            logger.debug("A claim could not be looked up again", extra={"volume": known.volume.name, "error": error})

    async def _resolve(self, known: ClaimedVolume) -> VolumeSpec:
        use, pod = known.use, known.pod
        check_name(use)
        try:
            claim = await self._reader.claim(use.namespace, use.name)
        except KletError as error:
            raise use.failed(f"failed to fetch PVC from API server: {error}") from error
        name = check_claim(use, pod, claim)
        known.size = claim.status.capacity.get("storage")
        try:
            volume = await self._reader.persistent_volume(name)
        except KletError as error:
            raise use.failed(f"failed to fetch PV {name} from API server: {error}") from error
        check_volume(use, claim, volume)
        return build_spec(use, pod, known.volume, volume)
