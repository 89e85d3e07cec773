"""Cleans up after pods that no source wants: stops what still runs, removes what is dead (HandlePodCleanups).

It runs when a pod has finished and, as a safety net, every two seconds; never before all sources have been seen, since
a pod that is only not read yet must not be taken for an orphan.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Protocol

from klet.aio.clock import Clock
from klet.aio.turns import Turns
from klet.api.container import Container
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod, PodSpec, PodStatus
from klet.api.pod_annotations import SOURCE_ANNOTATION
from klet.api.times import Time
from klet.errors import KletError
from klet.model.causes import CauseRecorder, FindingSubject
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import PodRuntimeStatus
from klet.pleg.cache import RuntimeCache
from klet.pods.store import PodStore
from klet.runtime.kill.killer import PodKiller
from klet.runtime.labels import legacy_log_names
from klet.status.phase import is_terminal
from klet.sync.ledger import WorkerLedger
from klet.sync.metrics import HousekeepingMetrics, static_label
from klet.sync.pod_host_resources import PodHostResources
from klet.sync.worker_state import PodUpdate, Stage, UpdateKind
from klet.sync.workers import PodWorkers

logger = logging.getLogger(__name__)

DECIDER = "sync.housekeeping"
PERIOD = timedelta(seconds=2)
REMOVALS = 4
LONGEST_REMOVAL = timedelta(seconds=2)
"""A removal that takes longer no longer counts towards the limit of parallel removals: its shim may hang."""


class OrphanCgroups(Protocol):
    """The part of the pod cgroups that housekeeping needs."""

    async def orphans(self, known: frozenset[PodUID]) -> tuple[PodUID, ...]: ...

    async def destroy_uid(self, uid: PodUID) -> None: ...

    async def reduce_cpu(self, uid: PodUID) -> None: ...


class OrphanLinks(Protocol):
    """The part of the log files that housekeeping needs."""

    async def unlink(self, name: str) -> None: ...


class Leftovers:
    """Removes what a pod leaves in the runtime, on disk and in the cgroup tree."""

    def __init__(
        self,
        *,
        killer: PodKiller,
        files: PodHostResources,
        links: OrphanLinks,
        cgroups: OrphanCgroups,
        recorder: CauseRecorder,
    ) -> None:
        self._killer = killer
        self._files = files
        self._links = links
        self._cgroups = cgroups
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def remove(self, uid: PodUID, status: PodRuntimeStatus | None) -> None:
        """Remove everything of one pod."""
        if status is not None:
            # The names of the log links are derived from the containers, so the containers go last.
            for link in legacy_log_names(status):
                await self._links.unlink(link)
            await self._killer.remove_pod(status)
        try:
            await self._files.remove_pod(uid)
        except KletError:
            # Its volumes are still there, so its cgroup stays too; what may still run in it gets the least CPU.
            await self._cgroups.reduce_cpu(uid)
            raise
        await self._cgroups.destroy_uid(uid)
        name, namespace = (status.name, status.namespace) if status else ("", "")
        self._decisions.about(FindingSubject(namespace=namespace, name=name, uid=uid)).record(
            Reason.REMOVED, "no source has the pod any more; its containers, files and cgroup are removed"
        )

    async def found(self, known: frozenset[PodUID]) -> frozenset[PodUID]:
        """Return pods of which only a directory or a cgroup is left. What belongs to no pod at all is released."""
        self._files.release_unused()
        on_disk = await self._files.pods_on_disk()
        return (on_disk - known) | frozenset(await self._cgroups.orphans(known))


class HousekeepingTrigger:
    """Starts a pass when another part asks for one, and periodically; never before all sources were seen.

    It is built before the parts that ask and the one that waits, because those depend on one another.
    """

    def __init__(self, *, sources_ready: Callable[[], bool], clock: Clock) -> None:
        self._sources_ready = sources_ready
        self._clock = clock
        self._asked = asyncio.Event()

    def ask(self) -> None:
        self._asked.set()

    def finished(self, uid: PodUID) -> None:  # noqa: ARG002 - the pass looks at every pod anyway
        self._asked.set()

    async def wait(self) -> None:
        while True:
            await self._clock.wait(self._asked.wait(), at_most=PERIOD)
            self._asked.clear()
            if self._sources_ready():
                return


class PodMemories:
    """Every part that keeps state of pods. `remembered` are those that a previous run of the agent knew."""

    def __init__(
        self,
        *,
        forget: Sequence[Callable[[PodUID], None]],
        remembered: Callable[[], Collection[PodUID]],
        status_of: Callable[[PodUID], PodStatus | None],
    ) -> None:
        self._forget = tuple(forget)
        self._remembered = remembered
        self._status_of = status_of

    def is_over(self, pod: Pod) -> bool:
        """Return whether the pod is in a terminal phase, at the API server or in what was reported."""
        reported = self._status_of(uid_of(pod))
        return is_terminal(pod.status.phase) or (reported is not None and is_terminal(reported.phase))

    def forget(self, uid: PodUID) -> None:
        for forget in self._forget:
            forget(uid)

    def forget_all_but(self, known: AbstractSet[PodUID]) -> None:
        """Forget pods that went while no agent ran: one that comes back starts without their state."""
        for uid in sorted(set(self._remembered()) - known):
            self.forget(uid)


class StuckRemovals:
    """Removals that failed: one log line for a whole pass, because anyone may make many directories in `pods/`.

    The same again is not logged: what cannot be removed may stay for days, and a pass comes every two seconds.
    """

    def __init__(self) -> None:
        self._count = 0
        self._example: tuple[PodUID, KletError] | None = None
        self._logged: tuple[int, PodUID, str] | None = None

    @property
    def count(self) -> int:
        """How many were noted since the last time that they were logged."""
        return self._count

    def note(self, uid: PodUID, error: KletError) -> None:
        self._count += 1
        self._example = self._example or (uid, error)

    def log(self) -> None:
        """Log what was noted since the last time, if anything was."""
        if self._example is None:
            self._logged = None
            return
        uid, error = self._example
        if self._logged != (self._count, uid, str(error)):
            extra = {"pods": self._count, "uid": uid, "error": str(error)}
            logger.warning("Leftovers of pods stay for now", extra=extra)
        self._logged = (self._count, uid, str(error))
        self._count, self._example = 0, None


class Housekeeping:
    """Compares what is wanted with what exists."""

    def __init__(
        self,
        *,
        pods: PodStore,
        ledger: WorkerLedger,
        workers: PodWorkers,
        cache: RuntimeCache,
        memories: PodMemories,
        leftovers: Leftovers,
        trigger: HousekeepingTrigger,
        clock: Clock,
        metrics: HousekeepingMetrics,
    ) -> None:
        self._metrics = metrics
        self._pods = pods
        self._ledger = ledger
        self._workers = workers
        self._cache = cache
        self._memories = memories
        self._leftovers = leftovers
        self._clock = clock
        self._trigger = trigger
        self._nudged_at = float("-inf")
        self._turns = Turns(at_once=REMOVALS, longest=LONGEST_REMOVAL, clock=clock)
        self._removing: set[PodUID] = set()
        self._stuck = StuckRemovals()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as removals:
            while True:
                await self._trigger.wait()
                try:
                    await self._pass(removals)
                except KletError as error:
                    logger.warning("Housekeeping was cut short", extra={"error": str(error)})

    async def _pass(self, removals: asyncio.TaskGroup) -> None:
        """Run one pass. A pod that cannot be cleaned up now is retried in the next one; no other pod waits for it."""
        self._metrics.kept_failed.set(self._stuck.count)
        self._stuck.log()
        self._settle_workers()
        self._start_forgotten()
        self._nudge_orphans()
        self._ledger.mark_complete()
        wanted = self._pods.uids()
        self._memories.forget_all_but(wanted | self._ledger.all().keys())
        in_runtime = self._cache.pods()
        for uid, status in in_runtime.items():
            if uid in wanted or self._ledger.get(uid) is not None:
                continue
            if status.is_live:
                self._metrics.orphaned.add()
                self._workers.update(PodUpdate(kind=UpdateKind.KILL, pod=synthetic_pod(status), is_runtime_only=True))
            else:
                self._begin_removal(uid, status, removals)
        known = wanted | self._ledger.all().keys() | in_runtime.keys()
        found = sorted(await self._leftovers.found(frozenset(known)))
        for uid in found:
            self._begin_removal(uid, None, removals)
        self._metrics.kept.set(len(found))

    def _settle_workers(self) -> None:
        """Terminate orphans, forget finished pods, and start those again that came back meanwhile."""
        wanted = self._pods.uids()
        for uid, state in self._ledger.all().items():
            if state.stage is Stage.FINISHED and (uid not in wanted or state.restart_requested):
                if not self._workers.forget(uid):
                    continue  # the end of its worker triggers another pass
                self._memories.forget(uid)
                pod = self._pods.get(uid)
                if pod is not None:
                    self._metrics.restarted.add(static_label(pod))
                    self._workers.update(PodUpdate(kind=UpdateKind.CREATE, pod=pod, cause=state.cause))
            elif uid not in wanted and not state.is_runtime_only:
                self._workers.orphan(uid)

    def _start_forgotten(self) -> None:
        """Start a worker for a wanted pod without one: to run it, or to clean it up if it has ended and is deleted."""
        for pod in self._pods.all():
            uid = uid_of(pod)
            if self._ledger.get(uid) is not None:
                continue
            if not self._memories.is_over(pod):
                self._workers.update(PodUpdate(kind=UpdateKind.CREATE, pod=pod))
            elif pod.metadata.deletion_timestamp is not None and not self._cache.is_live(uid):
                self._workers.update(PodUpdate(kind=UpdateKind.KILL, pod=pod, why="the pod is over and being deleted"))

    def _nudge_orphans(self) -> None:
        """Wake orphans that terminate: no source updates them any more, so their stop is retried here."""
        now = self._clock.monotonic()
        if now - self._nudged_at < PERIOD.total_seconds():
            return
        self._nudged_at = now
        wanted = self._pods.uids()
        for uid, state in self._ledger.all().items():
            if uid not in wanted and state.is_terminating:
                self._workers.wake(uid)

    def _begin_removal(self, uid: PodUID, status: PodRuntimeStatus | None, removals: asyncio.TaskGroup) -> None:
        if uid not in self._removing:
            self._removing.add(uid)
            removals.create_task(self._remove_in_turn(uid, status), name=f"removal-{uid}")

    async def _remove_in_turn(self, uid: PodUID, status: PodRuntimeStatus | None) -> None:
        try:
            with self._turns.queue() as turn:
                await turn.take()
                await self._remove(uid, status)
        finally:
            self._removing.discard(uid)
            if not self._removing:
                self._stuck.log()

    async def _remove(self, uid: PodUID, status: PodRuntimeStatus | None) -> None:
        if self._pods.get(uid) is not None or self._ledger.get(uid) is not None:
            return  # it came back while others were removed
        try:
            with self._workers.holding_back(uid):
                # Expired first: if the removal fails half-way, a pod that comes back must not use the old status.
                self._cache.expire(uid)
                await self._leftovers.remove(uid, status)
                self._cache.forget(uid)
        except KletError as error:
            self._stuck.note(uid, error)


def synthetic_pod(status: PodRuntimeStatus) -> Pod:
    """Return a pod made from what the runtime knows: enough to stop it."""
    made = [sandbox.created_at for sandbox in status.sandboxes]
    names = dict.fromkeys(record.name for record in status.containers)
    images = {record.name: record.image for record in status.containers}
    return Pod(
        metadata=ObjectMeta(
            name=status.name,
            namespace=status.namespace,
            uid=status.uid,
            annotations={SOURCE_ANNOTATION: status.source} if status.source else {},
            creation_timestamp=Time.of(min(made)) if made else None,
        ),
        spec=PodSpec(containers=tuple(Container(name=name, image=images[name]) for name in names)),
    )
