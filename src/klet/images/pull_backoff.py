"""How long pods wait before they pull an image again that could not be pulled; survives the agent."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from klet.aio.backoff import Backoff
from klet.aio.broadcast import Broadcast, Subscription
from klet.model.images import MissingImage
from klet.model.pods import PodUID
from klet.model.saved_state import PullDelay

FIRST_DELAY = timedelta(seconds=10)
LONGEST_DELAY = timedelta(seconds=300)


class PullBackoff:
    """A delay per pod and image, doubled by each failure. Written by the image manager only."""

    def __init__(self, *, restored: Iterable[PullDelay] = ()) -> None:
        self._delays = Backoff[tuple[PodUID, str]](first=FIRST_DELAY, longest=LONGEST_DELAY)
        self._failures: dict[tuple[PodUID, str], MissingImage] = {}
        self._changes = Broadcast[PodUID]()
        for known in restored:
            key = (known.uid, known.image)
            self._delays.restore(key, delay=known.delay, updated=known.counted_at)
            if known.reason:
                self._failures[key] = MissingImage(known.reason, known.message)

    def failure_in_force(self, uid: PodUID, image: str, *, now: datetime) -> MissingImage | None:
        """Return the last failure, if it is too early to try again."""
        failure = self._failures.get((uid, image))
        retry_at = self._delays.waiting_until((uid, image), now=now)
        return replace(failure, retry_at=retry_at) if failure is not None and retry_at is not None else None

    def failed(self, uid: PodUID, image: str, failure: MissingImage, *, now: datetime) -> timedelta:
        """Count a failure; the next pull waits that long."""
        self._failures[uid, image] = failure
        delay = self._delays.next((uid, image), now=now)
        self._changes.send(uid)
        return delay

    def pulled(self, uid: PodUID, image: str) -> None:
        """Let the next pull begin at once; if it fails, its delay goes on from the last."""
        if self._failures.pop((uid, image), None) is not None:
            self._changes.send(uid)

    def forget(self, uid: PodUID) -> None:
        """Drop a pod that is gone."""
        self._delays.reset_where(lambda key: key[0] == uid)
        for key in [key for key in self._failures if key[0] == uid]:
            del self._failures[key]
        self._changes.send(uid)

    def pods(self) -> set[PodUID]:
        """Return the pods that have a delay."""
        return {key[0] for key in self._delays.known()}

    def all(self) -> tuple[PullDelay, ...]:
        none = MissingImage("", "")
        return tuple(
            PullDelay(
                uid=uid,
                image=image,
                delay=delay,
                counted_at=updated,
                reason=self._failures.get((uid, image), none).reason,
                message=self._failures.get((uid, image), none).message,
            )
            for (uid, image), delay, updated in self._delays.all()
        )

    def changes(self) -> Subscription[PodUID]:
        return self._changes.subscribe()
