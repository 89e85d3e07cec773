"""The statuses this node reports, by pod: written by the pod workers, read by the API (status manager).

It owns what needs memory of the last status: transition instants, the start time, and whether anything changed.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.pod import PodCondition, PodStatus
from klet.api.times import Time
from klet.model.pods import PodUID
from klet.status.conditions import OWNED


class StatusBoard:
    """Newest status per pod. What an earlier life of the agent reported counts until this one knows better."""

    def __init__(self, *, clock: Clock, restored: Mapping[PodUID, PodStatus] = MappingProxyType({})) -> None:
        self._clock = clock
        self._statuses: dict[PodUID, PodStatus] = {}
        self._restored = dict(restored)
        self._changes = Broadcast[PodUID]()

    def get(self, uid: PodUID) -> PodStatus | None:
        return self._statuses.get(uid) or self._restored.get(uid)

    def is_reported(self, uid: PodUID) -> bool:
        """True if this life of the agent has reported the pod."""
        return uid in self._statuses

    def all(self) -> dict[PodUID, PodStatus]:
        return self._restored | self._statuses

    def put(self, uid: PodUID, status: PodStatus, *, previous: PodStatus | None = None) -> bool:
        """Store a status and say whether it differs from the one before.

        `previous` is what its instants go on from, if that is not what the board has.
        """
        now = Time.of(self._clock.now())
        old = self._statuses.get(uid)
        dated = date_status(status, previous or self.get(uid), now=now)
        self._restored.pop(uid, None)
        if old is not None and dated == old:
            return False
        self._statuses[uid] = dated
        self._changes.send(uid)
        return True

    def forget(self, uid: PodUID) -> None:
        known = [board.pop(uid, None) for board in (self._statuses, self._restored)]
        if any(status is not None for status in known):
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
