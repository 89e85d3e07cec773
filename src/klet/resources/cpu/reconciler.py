"""Keeps running containers on their CPUs: all others leave those that a container has alone (reconcile loop)."""

import logging
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.cri.errors import CriError, CriNotFound
from klet.host.cpulist import format_cpu_list
from klet.model.allocation import Pins
from klet.model.causes import CauseRecorder, FindingSubject
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodsInRuntime
from klet.model.runtime import ContainerId
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.manager import CpuManager
from klet.resources.cpu.reconcile import CpuChange, plan_changes
from klet.resources.cpu.topology import CpuSet
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER: Final = "resources.cpu"


class ContainerUpdates(Protocol):
    """The part of the runtime that moves containers to other CPUs."""

    async def update_container_resources(
        self, request: cri.UpdateContainerResourcesRequest
    ) -> cri.UpdateContainerResourcesResponse: ...


class CpuReconciler:
    """Compares what containers were given with the board: after each change there, and once in a period."""

    def __init__(
        self,
        *,
        manager: CpuManager,
        board: CpuBoard,
        pods: PodsInRuntime,
        runtime: ContainerUpdates,
        recorder: CauseRecorder,
        clock: Clock,
        period: timedelta,
    ) -> None:
        self._manager = manager
        self._board = board
        self._pods = pods
        self._runtime = runtime
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._period = period
        self._applied: dict[ContainerId, CpuSet] = {}
        """What containers were last given by this run of the agent."""
        self._failed: set[ContainerId] = set()
        self._created: set[ContainerId] = set()
        """Since the last pass."""

    async def run(self) -> None:
        with self._board.changes() as changes:
            while True:
                changes.drain()
                await self.reconcile()
                await self._clock.wait(changes.get(), at_most=self._period)

    async def reconcile(self) -> None:
        """Move the containers that have to move; one that could not is tried again in the next pass."""
        await self._manager.release_stale()
        plan = plan_changes(self._board.state, self._pods.pods().values(), self._applied)
        self._forget(plan.known)
        for change in plan.changes:
            await self._move(change)

    def pins_of(self, uid: PodUID, container: str) -> Pins:
        return self._board.pins_of(uid, container)

    async def before_start(
        self,
        pod: Pod,  # noqa: ARG002 - the role's
        container: str,  # noqa: ARG002 - the role's
        container_id: ContainerId,
        cpus: CpuSet,
    ) -> None:
        """Note what a container was created with. The shared CPUs may be others by now."""
        self._applied[container_id] = cpus
        self._created.add(container_id)

    def _forget(self, known: frozenset[ContainerId]) -> None:
        """Drop containers that are gone. One that was just created may not have been read yet."""
        kept = known | self._created
        self._applied = {each: cpus for each, cpus in self._applied.items() if each in kept}
        self._failed &= kept
        self._created.clear()

    async def _move(self, change: CpuChange) -> None:
        cpus = format_cpu_list(change.cpus)
        resources = cri.LinuxContainerResources(cpuset_cpus=cpus)
        request = cri.UpdateContainerResourcesRequest(container_id=change.container_id, linux=resources)
        try:
            await self._runtime.update_container_resources(request)
        except CriNotFound:
            return
        except CriError as error:
            self._note_failure(change, cpus, error)
            return
        before = self._applied.get(change.container_id)
        self._applied[change.container_id] = change.cpus
        self._failed.discard(change.container_id)
        if before is not None:
            self._note_move(change, before=format_cpu_list(before), after=cpus)

    def _note_move(self, change: CpuChange, *, before: str, after: str) -> None:
        why = "they are its own" if change.is_exclusive else "these are shared now"
        self._decisions.about(_subject(change)).record(
            Reason.CPUS_CHANGED, f"moved from CPUs {before} to {after}: {why}", measurements={"cpus": after}
        )

    def _note_failure(self, change: CpuChange, cpus: str, error: CriError) -> None:
        """Record once that a container is not where it should be."""
        if change.container_id in self._failed:
            return
        self._failed.add(change.container_id)
        self._decisions.about(_subject(change)).record(
            Reason.CPUS_NOT_SET,
            f"the container cannot be moved to CPUs {cpus}: {error.message}",
            measurements={"cpus": cpus},
            next_step="try again in the next pass",
        )


def _subject(change: CpuChange) -> FindingSubject:
    pod = change.pod
    return FindingSubject(namespace=pod.namespace, name=pod.name, uid=pod.uid, container=change.container)
