"""Dispatches what happens to the pod workers: changes of the wanted pods and changes in the runtime (syncLoop).

It only dispatches; every decision about a pod is made by its worker.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from klet.aio.broadcast import Lagged
from klet.api.pod import Pod
from klet.api.pod_annotations import SOURCE_ANNOTATION
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import PodUID, full_name, is_mirror, is_static, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import PodRuntimeStatus
from klet.model.verbosity import STEADY, TRACE
from klet.pleg.cache import RuntimeCache
from klet.pods.store import PodStore
from klet.sources.merge import PodChangeKind, PodChanges
from klet.status.conditions import is_readiness_stale
from klet.sync.housekeeping import synthetic_pod
from klet.sync.loop_monitor import SyncLoopMonitor
from klet.sync.probe_sync import ProbeSync
from klet.sync.worker_state import PodUpdate, UpdateKind
from klet.sync.workers import PodWorkers

logger = logging.getLogger(__name__)

DECIDER = "sync.loop"
_LEAVES_NOTHING = frozenset({PodChangeKind.ADD, PodChangeKind.RECONCILE})
"""Changes after which pods leave nothing to clean up: they trigger no housekeeping."""


class ChangeSource(Protocol):
    """The merged changes of all pod sources."""

    async def next_change(self) -> PodChanges: ...

    def mark_handled(self, source: str) -> None:
        """Note that a change of that source was handled."""
        ...

    def all_ready(self) -> bool:
        """Return whether a change of every source was handled (upstream's AllReady)."""
        ...


class SyncLoop:
    """Dispatches changes to the workers."""

    def __init__(
        self,
        *,
        changes: ChangeSource,
        pods: PodStore,
        workers: PodWorkers,
        cache: RuntimeCache,
        probe_sync: ProbeSync,
        monitor: SyncLoopMonitor,
        housekeeping: Callable[[], None],
        recorder: CauseRecorder,
    ) -> None:
        self._changes = changes
        self._pods = pods
        self._workers = workers
        self._cache = cache
        self._probe_sync = probe_sync
        self._monitor = monitor
        self._housekeeping = housekeeping
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_runtime(), name="sync-runtime")
            group.create_task(self._follow_sources(), name="sync-sources")
            group.create_task(self._probe_sync.run(), name="sync-probes")
            group.create_task(self._monitor.run(), name="sync-monitor")

    def health_error(self) -> str | None:
        """Return why the loop counts as stuck, or None."""
        return self._monitor.health_error()

    async def _follow_runtime(self) -> None:
        with self._cache.changes() as changes:
            async for uid in changes:
                if isinstance(uid, Lagged):
                    for pod in self._pods.all():
                        self._workers.wake(uid_of(pod))
                    continue
                logger.log(TRACE, "SyncLoop (PLEG): the runtime's state of a pod has changed", extra={"uid": uid})
                self._workers.wake(uid)
                if self._pods.get(uid) is None:
                    self._housekeeping()

    async def _follow_sources(self) -> None:
        await self._monitor.until_ready()
        while True:
            change = await self._changes.next_change()
            # While the runtime is not well nothing new is begun: the change waits until it is well again.
            await self._monitor.until_ready()
            _log_change(change)
            was_ready = self._changes.all_ready()
            if change.kind is PodChangeKind.ADD:
                self._stop_replaced(change)
            for pod in sorted(change.pods, key=_age):
                self._take_in(change.kind, change.source, pod)
            self._changes.mark_handled(change.source)
            if change.kind not in _LEAVES_NOTHING or not was_ready:
                self._housekeeping()

    def _stop_replaced(self, change: PodChanges) -> None:
        """Stop the static pods first that new ones replace: they share ports, paths and a name.

        A pod that was replaced while no agent ran is known to the runtime only. Its own source no longer has it, so
        this need not wait for the other sources.
        """
        seen = self._cache.pods()
        for uid in find_replaced(change.pods, seen):
            if self._pods.get(uid) is None and not self._workers.has(uid):
                pod = synthetic_pod(seen[uid])
                self._workers.update(PodUpdate(kind=UpdateKind.KILL, pod=pod, is_runtime_only=True))

    def _take_in(self, kind: PodChangeKind, source: str, pod: Pod) -> None:
        if is_mirror(pod):
            self._take_in_mirror(kind, pod)
            return
        uid = uid_of(pod)
        about = self._decisions.for_pod(pod)
        match kind:
            case PodChangeKind.ADD:
                self._pods.put(pod)
                cause = self._record_addition(pod, source)
                self._update(UpdateKind.CREATE, pod, cause)
            case PodChangeKind.UPDATE | PodChangeKind.DELETE:
                self._pods.put(pod)
                changed = f"source {source} changed the pod"
                cause = about.record(Reason.POD_UPDATED, changed, next_step="bring it up to date")
                self._update(UpdateKind.UPDATE, pod, cause)
            case PodChangeKind.RECONCILE:
                self._pods.put(pod)
                if is_readiness_stale(pod):
                    changed = "a readiness gate has changed"
                    cause = about.record(Reason.READINESS_GATE, changed, next_step="report it again")
                    self._update(UpdateKind.SYNC, pod, cause)
            case PodChangeKind.REMOVE:
                self._remove(uid, pod, source)

    def _take_in_mirror(self, kind: PodChangeKind, mirror: Pod) -> None:
        """Store or remove a mirror. It starts nothing: only the manifest of the static pod says what to run."""
        if kind is PodChangeKind.REMOVE:
            self._pods.remove_mirror(mirror)
        else:
            self._pods.put_mirror(mirror)

    def _remove(self, uid: PodUID, pod: Pod, source: str) -> None:
        self._pods.remove(uid)
        why = f"source {source} no longer has the pod"
        cause = self._decisions.for_pod(pod).record(Reason.POD_REMOVED, why, next_step="stop it")
        if self._changes.all_ready():
            self._update(UpdateKind.KILL, pod, cause, why=why)

    def _update(self, kind: UpdateKind, pod: Pod, cause: CauseId, *, why: str = "") -> None:
        self._workers.update(PodUpdate(kind=kind, pod=pod, cause=cause, why=why))

    def _record_addition(self, pod: Pod, source: str) -> CauseId:
        reading = self._cache.get(uid_of(pod))
        if reading is not None and not reading.status.is_empty:
            message = f"source {source} has the pod, and the runtime has it from before"
            following = "take it over as it is"
        else:
            message, following = f"source {source} has a new pod", "admit and start it"
        return self._decisions.for_pod(pod).record(Reason.POD_ADDED, message, next_step=following)


def find_replaced(coming: Sequence[Pod], seen: Mapping[PodUID, PodRuntimeStatus]) -> tuple[PodUID, ...]:
    """Return the live static pods in the runtime that have the name and source of one of the new pods."""
    places = {(pod.metadata.annotations[SOURCE_ANNOTATION], full_name(pod)) for pod in coming if is_static(pod)}
    names = {uid_of(pod) for pod in coming}
    return tuple(
        uid
        for uid, status in seen.items()
        if uid not in names and status.is_live and (status.source, full_name(synthetic_pod(status))) in places
    )


def _log_change(change: PodChanges) -> None:
    """Log which pods a source has changed; statuses that come back from the API server are many, and only traced."""
    level = TRACE if change.kind is PodChangeKind.RECONCILE else STEADY
    if change.pods and logger.isEnabledFor(level):
        pods = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in change.pods]
        logger.log(level, "SyncLoop %s", change.kind.name, extra={"source": change.source, "pods": pods})


def _age(pod: Pod) -> float:
    """Sort key: the oldest pods first."""
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0
