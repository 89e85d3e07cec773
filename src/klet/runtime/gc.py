"""Removes dead containers, sandboxes and logs (container GC): every minute, and old instances as soon as a newer one
has died.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Protocol, TypeVar

from msgspec.structs import replace

from klet.aio.broadcast import Subscription
from klet.aio.clock import Clock
from klet.aio.tasks import run_periodically
from klet.aio.turns import Turns
from klet.api.times import Duration
from klet.cri.errors import CriError, CriNotFound
from klet.cri.port import RuntimeService
from klet.errors import KletError
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import ContainerId, PodRuntimeStatus, RuntimeContainerState, SandboxId
from klet.model.tracing import Tracer
from klet.runtime import labels
from klet.runtime.gc_plan import (
    GcPolicy,
    ListedContainer,
    ListedSandbox,
    plan_after_death,
    plan_containers,
    plan_links,
    plan_sandboxes,
)
from klet.runtime.kill.killer import PodKiller
from klet.runtime.log_files import LogDirectory
from klet.runtime.reader import build_container_record, from_nanoseconds, state_of
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER = "runtime.gc"
SCOPE = "k8s.io/kubernetes/pkg/kubelet/kuberuntime"
PERIOD = timedelta(minutes=1)
REMOVALS = 8
LONGEST_REMOVAL = timedelta(seconds=10)
"""A removal that takes longer is no longer waited for: the next one begins."""
IN_UNKNOWN_STATE = "Container is in unknown state, try killing it before removal"


Id = TypeVar("Id", bound=str)


class Logs(Protocol):
    """The logs of containers, as the collector sees them."""

    async def unlink(self, name: str) -> None: ...

    async def remove_log(self, log: str) -> None: ...

    async def directories(self) -> tuple[LogDirectory, ...]: ...

    async def remove_directory(self, directory: LogDirectory) -> None: ...

    async def dangling_links(self) -> tuple[str, ...]: ...


class PodPresence(Protocol):
    """Knows which pods have stopped, and which are gone."""

    def are_sources_ready(self) -> bool: ...

    def should_content_be_removed(self, uid: PodUID) -> bool:
        """Return whether the pod is gone for good: its containers and logs are not needed any more."""
        ...

    def should_runtime_be_removed(self, uid: PodUID) -> bool:
        """Return whether the pod has stopped."""
        ...


class SeenPods(Protocol):
    """Publishes which pods changed in the runtime, and how."""

    def changes(self) -> Subscription[PodUID]: ...

    def status_of(self, uid: PodUID) -> PodRuntimeStatus | None: ...


class ContainerRemover:
    """Removes one dead container with its log."""

    def __init__(self, *, runtime: RuntimeService, killer: PodKiller, logs: Logs) -> None:
        self._runtime = runtime
        self._killer = killer
        self._logs = logs

    @property
    def logs(self) -> Logs:
        """Where the logs of what it removes are."""
        return self._logs

    async def remove(self, container: ContainerId) -> bool:
        """Remove it and return True, unless it runs.

        A log that cannot be removed keeps its container, so that it is tried again.
        """
        try:
            answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container))
        except CriNotFound:
            return True
        status = answer.status
        if status.state == cri.CONTAINER_RUNNING:
            return False  # it was started since it was listed
        record = build_container_record(status)
        pod = labels.restore_pod(
            record,
            uid=PodUID(status.labels.get(labels.POD_UID, "")),
            name=status.labels.get(labels.POD_NAME, ""),
            namespace=status.labels.get(labels.POD_NAMESPACE, ""),
        )
        if record.state is RuntimeContainerState.UNKNOWN:
            await self._killer.kill_container(pod, record, message=IN_UNKNOWN_STATE, parent=None)
        if status.log_path:
            await self._logs.remove_log(status.log_path)
        await self._logs.unlink(labels.legacy_log_name(pod, record.name, record.id))
        try:
            await self._runtime.remove_container(cri.RemoveContainerRequest(container_id=container))
        except CriNotFound:
            return True
        return True


class ContainerGc:
    """Collects what is dead."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        remover: ContainerRemover,
        fates: PodPresence,
        seen: SeenPods,
        recorder: CauseRecorder,
        clock: Clock,
        policy: GcPolicy,
        tracer: Tracer | None = None,
    ) -> None:
        self._runtime = runtime
        self._remover = remover
        self._logs = remover.logs
        self._tracer = tracer
        self._fates = fates
        self._seen = seen
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._policy = policy
        self._turns = Turns(at_once=REMOVALS, longest=LONGEST_REMOVAL, clock=clock)
        self._removing: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_deaths(group), name="gc-deaths")
            group.create_task(
                run_periodically(self.collect, every=PERIOD, clock=self._clock, name="container GC"), name="gc-all"
            )

    async def collect(self, *, all_stopped: bool = False) -> None:
        """Run one pass; with `all_stopped` also what is left of pods that have merely stopped, to free disk space.

        Each stage runs whatever became of the one before, and also while a removal of the one before hangs.
        """
        if self._tracer is None:
            await self._collect(all_stopped=all_stopped)
            return
        with self._tracer.span("Containers/GarbageCollect", scope=SCOPE):
            await self._collect(all_stopped=all_stopped)

    async def _collect(self, *, all_stopped: bool) -> None:
        is_over = self._fates.should_runtime_be_removed if all_stopped else self._fates.should_content_be_removed
        failures = []
        async with asyncio.TaskGroup() as group:
            for stage in (self._collect_containers, self._collect_sandboxes, self._collect_logs):
                try:
                    await stage(is_over, group)
                except KletError as error:
                    failures.append(str(error))
        if failures:
            message = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
            following = f"try again in {Duration.of(PERIOD).wire()}"
            self._decisions.for_node().record(Reason.CONTAINER_GC_FAILED, message, next_step=following)

    async def _collect_containers(self, is_over: Callable[[PodUID], bool], group: asyncio.TaskGroup) -> None:
        if not self._fates.are_sources_ready():
            return  # the agent has just started, and has not seen yet what the containers are
        listed = [self._as_seen(container) for container in await self._containers()]
        uids = {container.uid for container in listed}
        removable = {uid for uid in uids if is_over(uid)}
        plan = plan_containers(listed, self._policy, removable=removable, now=self._clock.now())
        tasks = self._begin(self._remove, (container.id for container in plan), group)
        await self._until_most_are_done(tasks)

    def _as_seen(self, container: ListedContainer) -> ListedContainer:
        """Correct the list, which shows an interrupted start as an end: it must not evict the container before it."""
        status = self._seen.status_of(container.uid)
        found = [record for record in status.containers if record.id == container.id] if status is not None else []
        unstarted = any(record.state is RuntimeContainerState.CREATED for record in found)
        return replace(container, state=RuntimeContainerState.CREATED) if unstarted else container

    async def _collect_sandboxes(self, is_over: Callable[[PodUID], bool], group: asyncio.TaskGroup) -> None:
        """Remove sandboxes. Containers are listed again: those that went may have left an empty sandbox."""
        answer = await self._runtime.list_pod_sandbox(cri.ListPodSandboxRequest())
        occupied = {container.sandbox_id for container in await self._containers()}
        sandboxes = [
            ListedSandbox(
                id=SandboxId(found.id),
                uid=found.metadata.uid,
                is_ready=found.state == cri.SANDBOX_READY,
                created_at=from_nanoseconds(found.created_at),
            )
            for found in answer.items
            if isinstance(found.metadata.uid, PodUID)
        ]
        removable = {sandbox.uid for sandbox in sandboxes if is_over(sandbox.uid)}
        plan = plan_sandboxes(sandboxes, occupied=occupied, removable=removable)
        await self._until_most_are_done(self._begin(self._remove_sandbox, plan, group))

    async def _collect_logs(self, is_over: Callable[[PodUID], bool], _group: asyncio.TaskGroup) -> None:
        if self._fates.are_sources_ready():
            for directory in await self._logs.directories():
                if is_over(directory.uid):
                    await self._remove_logs(directory)
        dangling = await self._logs.dangling_links()
        if not dangling:
            return
        states = {container.id: container.state for container in await self._containers()}
        for link in plan_links(dangling, states):
            await self._logs.unlink(link)

    async def _containers(self) -> list[ListedContainer]:
        answer = await self._runtime.list_containers(cri.ListContainersRequest())
        return [
            ListedContainer(
                id=ContainerId(found.id),
                uid=uid,
                name=found.metadata.name,
                state=state_of(found.state),
                created_at=from_nanoseconds(found.created_at),
                sandbox_id=SandboxId(found.pod_sandbox_id),
            )
            for found in answer.containers
            if isinstance(uid := found.labels.get(labels.POD_UID), PodUID)
        ]

    async def _follow_deaths(self, group: asyncio.TaskGroup) -> None:
        with self._seen.changes() as changes:
            async for uid in changes.items():
                status = self._seen.status_of(uid)
                if status is None:
                    continue
                is_removable = self._fates.should_content_be_removed(uid)
                dead = plan_after_death(status, keep=self._policy.max_per_container, is_removable=is_removable)
                self._begin(self._remove, (record.id for record in dead), group)

    def _begin(
        self, remove: Callable[[Id], Awaitable[None]], things: Iterable[Id], group: asyncio.TaskGroup
    ) -> list[asyncio.Task[None]]:
        """Remove some at once, each in its turn; what is being removed already is left alone."""
        chosen = [thing for thing in things if thing not in self._removing]
        self._removing.update(chosen)
        return [group.create_task(self._in_turn(remove, thing), name=f"gc-{thing}") for thing in chosen]

    async def _in_turn(self, remove: Callable[[Id], Awaitable[None]], thing: Id) -> None:
        try:
            with self._turns.queue() as turn:
                await turn.take()
                await remove(thing)
        finally:
            self._removing.discard(thing)

    async def _until_most_are_done(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until every removal has had its turn, and has ended or taken too long."""
        rounds = -(-len(tasks) // REMOVALS)
        if tasks:
            await self._clock.wait(asyncio.wait(tasks), at_most=LONGEST_REMOVAL * rounds)

    async def _remove(self, container: ContainerId) -> None:
        """Remove a container; one that cannot be removed now stays for the next pass."""
        try:
            await self._remover.remove(container)
        except KletError as error:
            logger.warning("A dead container stays for now", extra={"container": container, "error": str(error)})

    async def _remove_sandbox(self, sandbox: SandboxId) -> None:
        try:
            await self._runtime.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
            await self._runtime.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
        except CriNotFound:
            return
        except CriError as error:
            logger.warning("A dead sandbox stays for now", extra={"sandbox": sandbox, "error": str(error)})

    async def _remove_logs(self, directory: LogDirectory) -> None:
        try:
            await self._logs.remove_directory(directory)
        except KletError as error:
            logger.warning("A pod's logs stay for now", extra={"uid": directory.uid, "error": str(error)})
