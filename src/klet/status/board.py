"""The statuses this node reports, by pod: written by the pod workers, read by the API (status manager).

It owns what needs memory of the last status: versions, transition instants, the start time, and whether anything
changed.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.pod import PodStatus
from klet.api.times import Time
from klet.model.pods import PodUID
from klet.status.transitions import date_status, is_same


class Reported(Struct, frozen=True, kw_only=True):
    """A status, how often it was changed, and whether it is the last."""

    status: PodStatus
    version: int
    is_finished: bool = False
    """Everything the pod held is released: it may be deleted."""


class StatusBoard:
    """Newest status per pod. What a previous run of the agent reported counts until this one reports."""

    def __init__(self, *, clock: Clock, restored: Mapping[PodUID, PodStatus] = MappingProxyType({})) -> None:
        self._clock = clock
        self._reported: dict[PodUID, Reported] = {}
        self._restored = dict(restored)
        self._changes = Broadcast[PodUID]()
        self._removals = Broadcast[PodUID]()

    def get(self, uid: PodUID) -> PodStatus | None:
        reported = self._reported.get(uid)
        return reported.status if reported is not None else self._restored.get(uid)

    def reported(self, uid: PodUID) -> Reported | None:
        """Return what this run of the agent has reported of the pod."""
        return self._reported.get(uid)

    def is_reported(self, uid: PodUID) -> bool:
        """Return whether this run of the agent has reported the pod."""
        return uid in self._reported

    def pods(self) -> frozenset[PodUID]:
        """Return the pods of which a status is known."""
        return frozenset(self._restored.keys() | self._reported.keys())

    def all(self) -> dict[PodUID, PodStatus]:
        return self._restored | {uid: reported.status for uid, reported in self._reported.items()}

    def put(
        self,
        uid: PodUID,
        status: PodStatus,
        *,
        previous: PodStatus | None = None,
        is_forced: bool = False,
        is_finished: bool = False,
    ) -> bool:
        """Store a status and return whether it differs from the one before.

        `previous` is what its instants go on from, if that is not what the board has. A forced one counts as a new
        version in any case. A pod that has finished stays so.
        """
        known = self._reported.get(uid)
        new = date_status(status, previous or self.get(uid), now=Time.of(self._clock.now()))
        self._restored.pop(uid, None)
        is_changed = known is None or not is_same(known.status, new)
        if known is not None and not is_changed and not is_forced and not is_finished:
            return False
        self._reported[uid] = Reported(
            status=new,
            version=known.version + 1 if known is not None else 1,
            is_finished=is_finished or (known is not None and known.is_finished),
        )
        self._changes.send(uid)
        return is_changed

    def forget(self, uid: PodUID) -> None:
        known = (self._reported.pop(uid, None), self._restored.pop(uid, None))
        if any(status is not None for status in known):
            self._removals.send(uid)
            self._changes.send(uid)

    def changes(self) -> Subscription[PodUID]:
        return self._changes.subscribe()

    def removals(self) -> Subscription[PodUID]:
        """Pods whose status was forgotten."""
        return self._removals.subscribe()
