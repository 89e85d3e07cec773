"""Publishes the status board to the API server, and deletes pods that have finished (status manager, API side).

A status is patched, never put, and only for the pod with that UID. Pods do not wait for one another. What the watch or
the last response showed is the base of a patch, so that a change costs one request.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol

from msgspec import Struct

from klet.aio.backoff import Backoff
from klet.aio.broadcast import Lagged, Subscription
from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.api.patches.strategic_diff import create_strategic_patch
from klet.api.pod import Pod
from klet.api.times import Time
from klet.errors import KletError, level_for
from klet.kube.watch import WATCH_LAG
from klet.metrics import Histogram
from klet.model.pods import PodUID, format_pod, is_static, uid_of
from klet.model.verbosity import CHANGES
from klet.status.api_status import may_be_deleted, status_to_write
from klet.status.board import Reported, StatusBoard
from klet.status.phase import PENDING, is_coming
from klet.status.transitions import is_same

logger = logging.getLogger(__name__)

SWEEP: Final = timedelta(seconds=10)
COMING_PAUSE: Final = timedelta(milliseconds=300)
"""How long a status that only says that a pod starts waits: a pod that starts alone needs one request then, not two."""
COMING_GAP: Final = timedelta(milliseconds=30)
"""Between two of them, so that a status that matters does not queue behind all of them."""
COMING_WITHIN: Final = timedelta(seconds=3)
"""After the pause. The gaps are shorter if so many wait that it would take longer."""
_PARALLEL: Final = 8
_FIRST_DELAY: Final = timedelta(milliseconds=500)


class PodApiError(KletError):
    """The request failed; it is retried."""


class PodGone(PodApiError):
    """The API server has no such pod, or another one of its name."""


class PodApi(Protocol):
    """Pods at the API server."""

    def seen(self, pod: Pod) -> Pod | None:
        """Return the newest state of the pod with this UID that the watch has shown."""
        ...

    async def read(self, pod: Pod) -> Pod:
        """GET the pod; raises PodGone, also if another pod has its name now."""
        ...

    async def patch_status(self, pod: Pod, patch: dict[str, Any]) -> Pod: ...

    async def delete(self, pod: Pod) -> None:
        """Delete the pod with this UID without grace period."""
        ...


class PodsAndMirrors(Protocol):
    """The pods that this node should run, and their mirrors."""

    def get(self, uid: PodUID) -> Pod | None: ...

    def by_full_name(self, name: str) -> Pod | None: ...

    def mirror_of(self, pod: Pod) -> Pod | None: ...

    def changes(self) -> Subscription[str]:
        """Subscribe to full names of pods and mirrors that were added, changed or removed."""
        ...


class _Sent(Struct, frozen=True):
    """The newest version that the API server has, and for which object."""

    api_uid: str
    version: int
    answer: Pod
    at: float
    """On the monotonic clock."""


class _Deleted(Struct, frozen=True):
    """An object that was deleted at the API server, and its newest version that was known then."""

    api_uid: str
    version: int


class StatusManager:
    """Keeps the API server's statuses equal to the board's."""

    name = "statuses"

    def __init__(
        self,
        *,
        board: StatusBoard,
        pods: PodsAndMirrors,
        api: PodApi,
        may_run: Callable[[PodUID], bool],
        delays: Histogram,
        clock: Clock,
    ) -> None:
        self._delays = delays
        self._changed: dict[PodUID, float] = {}
        """Since when (monotonic clock) a status has not reached the API server."""
        self._board = board
        self._pods = pods
        self._api = api
        self._may_run = may_run
        self._clock = clock
        self._queue = WorkQueue[PodUID](clock=clock)
        self._sent: dict[PodUID, _Sent] = {}
        self._deleted: dict[PodUID, _Deleted] = {}
        self._backoff = Backoff[PodUID](first=_FIRST_DELAY, longest=SWEEP)
        self._coming: dict[PodUID, float] = {}
        """Pods whose status only says that they are starting, and since when (monotonic clock), oldest first."""
        self._some_come = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="status-changes")
            group.create_task(self._follow_pods(), name="status-targets")
            group.create_task(self._sweep(), name="status-sweep")
            group.create_task(self._publish_coming(), name="status-coming")
            for number in range(_PARALLEL):
                group.create_task(self._work(), name=f"status-writer-{number}")

    @property
    def queue_length(self) -> int:
        """How many statuses wait for their turn."""
        return len(self._queue) + len(self._coming)

    @property
    def waiting(self) -> int:
        """How many statuses the API server does not have yet."""
        return sum(map(self._differs, self._board.all()))

    async def drain(self) -> None:
        """Write what the API server does not have yet, when the agent stops and `run` has ended; nothing is retried."""
        behind = iter([uid for uid in self._board.all() if self._differs(uid)])

        async def write_next() -> None:
            for uid in behind:
                try:
                    await self._publish(uid)
                except PodApiError as error:
                    extra = {"uid": uid, "error": str(error)}
                    logger.debug("Pod status not written before the end", extra=extra)

        async with asyncio.TaskGroup() as group:
            for number in range(_PARALLEL):
                group.create_task(write_next(), name=f"status-last-{number}")

    async def _follow(self) -> None:
        with self._board.changes() as changes:
            # Subscribed first: a change between the two lines is seen at least once.
            for uid in self._board.all():
                self._add(uid)
            async for change in changes:
                for uid in self._board.all() if isinstance(change, Lagged) else (change,):
                    self._add(uid)

    async def _follow_pods(self) -> None:
        """Publish to a new mirror, and correct a status that another client wrote; the sweep finds what is dropped."""
        with self._pods.changes() as changes:
            async for name in changes.items():
                pod = self._pods.by_full_name(name)
                if pod is not None and self._differs(uid_of(pod)):
                    self._add(uid_of(pod))

    async def _sweep(self) -> None:
        """Find statuses that differ because of a lost request or a write of another client (upstream's batch sync)."""
        while True:
            await self._clock.sleep(SWEEP)
            known = self._board.all()
            for kept in (self._sent, self._deleted, self._changed):
                for uid in [uid for uid in kept if uid not in known]:
                    del kept[uid]
            for uid in known:
                if self._differs(uid):
                    self._add(uid)

    def _add(self, uid: PodUID) -> None:
        """Queue a status: at once if it matters, later if it only says that the pod starts."""
        self._changed.setdefault(uid, self._clock.monotonic())
        if self._is_news(uid):
            self._coming.pop(uid, None)
            self._queue.add(uid)
            return
        self._coming.setdefault(uid, self._clock.monotonic())
        self._some_come.set()

    def _is_news(self, uid: PodUID) -> bool:
        """Return whether a status says more than that a pod starts, which the API server knows."""
        reported, pod = self._board.reported(uid), self._pods.get(uid)
        if reported is None or reported.is_finished or not is_coming(reported.status):
            return True
        target = None if pod is None else self._target(pod)
        shown = None if target is None else self._known(uid, target)
        return shown is not None and shown.status.phase not in {"", PENDING}

    async def _publish_coming(self) -> None:
        """Publish that pods start, each after a pause, and one after the other.

        A pod that runs by then has left the queue by `_add`, and needs one request less.
        """
        while True:
            while not self._coming:
                self._some_come.clear()
                await self._some_come.wait()
            uid, since = next(iter(self._coming.items()))
            rest = COMING_PAUSE - timedelta(seconds=self._clock.monotonic() - since)
            if rest > timedelta(0):
                await self._clock.sleep(rest)
            if self._coming.pop(uid, None) is not None:
                self._queue.add(uid)
                await self._clock.sleep(self._coming_gap(since))

    def _coming_gap(self, since: float) -> timedelta:
        """Return the pause before the next of them: the oldest has waited since then, and the last is soon enough."""
        left = COMING_PAUSE + COMING_WITHIN - timedelta(seconds=self._clock.monotonic() - since)
        return min(COMING_GAP, max(left, timedelta(0)) / (len(self._coming) + 1))

    def _differs(self, uid: PodUID) -> bool:
        reported, pod = self._board.reported(uid), self._pods.get(uid)
        target = None if pod is None else self._target(pod)
        if reported is None or target is None or self._is_gone(uid, target):
            return False
        sent = self._sent.get(uid)
        if sent is None or sent.version < reported.version or sent.api_uid != target.metadata.uid:
            return True
        seen = self._api.seen(target)
        if seen is None:
            return False
        # The watch is behind our own write: comparing with it would write the same again. It is taken for true only if
        # it stays behind for longer than a watch may lag.
        if _version(seen) < _version(sent.answer):
            if self._clock.monotonic() - sent.at < WATCH_LAG.total_seconds():
                return False
            del self._sent[uid]
            return True
        if may_be_deleted(seen, is_finished=reported.is_finished):
            return True
        wanted = status_to_write(seen, reported.status, may_run=self._may_run(uid), now=self._now())
        if is_same(wanted, seen.status):
            return False
        del self._sent[uid]  # another client wrote it: compare again with what is there
        return True

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            try:
                await self._publish(uid)
                self._backoff.reset(uid)
            except PodGone:
                self._sent.pop(uid, None)  # the source of the pod removes it
            except PodApiError as error:
                delay = self._backoff.next(uid, now=self._clock.now())
                logger.log(level_for(error), "Pod status not written", extra={"uid": uid, "error": str(error)})
                self._queue.add_after(uid, delay)
            finally:
                self._queue.done(uid)

    async def _publish(self, uid: PodUID) -> None:
        reported, pod = self._board.reported(uid), self._pods.get(uid)
        target = None if pod is None else self._target(pod)
        if reported is None or target is None or self._is_gone(uid, target):
            return
        current = await self._write(uid, target, reported)
        if may_be_deleted(current, is_finished=reported.is_finished):
            await self._api.delete(current)
            self._deleted[uid] = _Deleted(current.metadata.uid, _version(current))
            logger.info("Pod fully terminated and removed", extra={"pod": format_pod(current)})

    async def _write(self, uid: PodUID, target: Pod, reported: Reported) -> Pod:
        # Upstream GETs the pod before each patch; here the base is what the watch or the last response showed.
        current = self._known(uid, target) or await self._api.read(target)
        sent = self._sent.get(uid)
        if sent is not None and sent.version == reported.version and sent.api_uid == target.metadata.uid:
            self._changed.pop(uid, None)
            return current
        wanted = status_to_write(current, reported.status, may_run=self._may_run(uid), now=self._now())
        patch = create_strategic_patch(Pod(status=current.status), Pod(status=wanted), Pod)
        # The UID in the patch makes the API server refuse it for another pod of the same name.
        if patch:
            current = await self._api.patch_status(current, {**patch, "metadata": {"uid": current.metadata.uid}})
            extra = {"pod": format_pod(current), "statusVersion": reported.version}
            logger.log(CHANGES, "Status for pod updated successfully", extra=extra)
        now = self._clock.monotonic()
        self._sent[uid] = _Sent(current.metadata.uid, reported.version, current, now)
        if (since := self._changed.pop(uid, None)) is not None and patch:
            self._delays.observe(now - since)
        return current

    def _known(self, uid: PodUID, target: Pod) -> Pod | None:
        """Return the newest state of the API object that the watch or a response has shown."""
        sent, seen = self._sent.get(uid), self._api.seen(target)
        answer = sent.answer if sent is not None and sent.api_uid == target.metadata.uid else None
        known = [each for each in (answer, seen) if each is not None]
        return max(known, key=_version, default=None)

    def _is_gone(self, uid: PodUID, target: Pod) -> bool:
        """Return whether it was deleted. The watch shows a newer version if a finalizer keeps it after all."""
        deleted = self._deleted.get(uid)
        if deleted is None or deleted.api_uid != target.metadata.uid:
            return False
        seen = self._api.seen(target)
        return seen is None or _version(seen) <= deleted.version

    def _target(self, pod: Pod) -> Pod | None:
        """Return the API object of the pod: for a static pod its mirror, if it has one."""
        return self._pods.mirror_of(pod) if is_static(pod) else pod

    def _now(self) -> Time:
        return Time.of(self._clock.now())


def _version(pod: Pod) -> int:
    return int(pod.metadata.resource_version or 0)
