"""The statuses this node reports, by pod: written by the pod workers, read by the API (status manager).

It owns what needs memory of the last status: transition instants, the start time, and whether anything changed.
"""

from msgspec.structs import replace

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.pod import PodCondition, PodStatus
from klet.api.times import Time
from klet.model.pods import PodUID
from klet.status.conditions import OWNED


class StatusBoard:
    """Newest status per pod."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._statuses: dict[PodUID, PodStatus] = {}
        self._changes = Broadcast[PodUID]()

    def get(self, uid: PodUID) -> PodStatus | None:
        return self._statuses.get(uid)

    def put(self, uid: PodUID, status: PodStatus) -> bool:
        """Store a status and say whether it differs from the one before."""
        now = Time.of(self._clock.now())
        old = self._statuses.get(uid)
        dated = date_status(status, old, now=now)
        if old is not None and dated == old:
            return False
        self._statuses[uid] = dated
        self._changes.send(uid)
        return True

    def forget(self, uid: PodUID) -> None:
        if self._statuses.pop(uid, None) is not None:
            self._changes.send(uid)

    def changes(self) -> Subscription[PodUID]:
        return self._changes.subscribe()


def date_status(status: PodStatus, old: PodStatus | None, *, now: Time) -> PodStatus:
    """Give conditions the instant of their last change, and the pod the instant it was first reported."""
    before = {condition.type: condition for condition in old.conditions} if old else {}
    dated = tuple(_dated(condition, before.get(condition.type), now) for condition in status.conditions)
    return replace(status, conditions=dated, start_time=(old.start_time if old else None) or status.start_time or now)


def _dated(condition: PodCondition, old: PodCondition | None, now: Time) -> PodCondition:
    if condition.type not in OWNED:
        return condition
    if old is not None and old.status == condition.status:
        return replace(condition, last_transition_time=old.last_transition_time)
    return replace(condition, last_transition_time=now)
