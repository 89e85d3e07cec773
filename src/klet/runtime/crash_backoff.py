"""How long containers that end again and again wait before their next start; survives the agent."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from klet.aio.backoff import Backoff
from klet.aio.broadcast import Broadcast, Subscription
from klet.api.codec import encode
from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.pod import Pod
from klet.model.pods import PodUID, uid_of
from klet.model.saved_state import CrashDelay

LONG_RUN = timedelta(seconds=600)
"""A container that ran so long starts again without waiting, whatever happened before."""


class CrashBackoffLimits(Struct, frozen=True):
    """The first and the longest delay."""

    first: timedelta
    longest: timedelta


def choose_crash_backoff(*, is_reduced: bool, configured: timedelta | None) -> CrashBackoffLimits:
    """Return the delays (newCrashLoopBackOff): `configured` is crashLoopBackOff.maxContainerRestartPeriod.

    `is_reduced` is the gate ReduceDefaultCrashLoopBackOffDecay. What is configured goes first, also where that is only
    the default of the field: so the gate moves the longest delay only while the field does not exist.
    """
    default = REDUCED if is_reduced else USUAL
    if configured is None:
        return default
    longest = timedelta() + configured  # a configured one is of a type that no checkpoint knows
    return CrashBackoffLimits(min(default.first, longest), longest)


USUAL = CrashBackoffLimits(timedelta(seconds=10), timedelta(seconds=300))
REDUCED = CrashBackoffLimits(timedelta(seconds=1), timedelta(seconds=60))


class CrashBackoff:
    """A delay per container of a pod, doubled by each start after an end. Written by the container starter only."""

    def __init__(self, *, limits: CrashBackoffLimits, restored: Iterable[CrashDelay] = ()) -> None:
        self._delays = Backoff[tuple[PodUID, str, str, str]](
            first=limits.first, longest=limits.longest, forget_after=LONG_RUN
        )
        self._changes = Broadcast[PodUID]()
        for known in restored:
            key = (known.uid, known.container, known.image, known.resources)
            self._delays.restore(key, delay=known.delay, updated=known.counted_at)

    def wait_after(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        resources: ResourceRequirements,
        finished_at: datetime,
        *,
        now: datetime,
    ) -> timedelta | None:
        """Return the delay after its last end, if it is not over yet. Otherwise count this start and return None."""
        key = (uid_of(pod), container.name, container.image, encode(resources).decode())
        if self._delays.is_waiting_since(key, finished_at, now=now):
            return self._delays.get(key)
        self._delays.next(key, now=now, event=finished_at)
        self._changes.send(uid_of(pod))
        return None

    def forget(self, uid: PodUID) -> None:
        """Drop a pod that is gone."""
        self._delays.reset_where(lambda key: key[0] == uid)
        self._changes.send(uid)

    def pods(self) -> set[PodUID]:
        """Return the pods that have a delay."""
        return {key[0] for key in self._delays.known()}

    def all(self) -> tuple[CrashDelay, ...]:
        return tuple(
            CrashDelay(uid=uid, container=name, image=image, resources=resources, delay=delay, counted_at=updated)
            for (uid, name, image, resources), delay, updated in self._delays.all()
        )

    def changes(self) -> Subscription[PodUID]:
        return self._changes.subscribe()
