"""Gives containers CPUs of their own, and keeps a record of that on disk (CPU manager)."""

import asyncio
import logging
from typing import Final

from klet.api.container import Container
from klet.api.pod import Pod
from klet.checkpoint.errors import CheckpointError
from klet.checkpoint.file import StateStore
from klet.checkpoint.upstream import CpuManagerState
from klet.host.cpulist import format_cpu_list
from klet.model.causes import CauseRecorder, FindingSubject, Measurement
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import Allocations, ResourceHolders
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.metrics import CpuManagerMetrics
from klet.resources.cpu.policy import StaticPolicy
from klet.resources.cpu.state import STATIC, CpuState, write_state
from klet.resources.cpu.static import (
    CpuDemand,
    GivenCpus,
    Released,
    WhyShared,
    allocate,
    container_hints,
    find_demand,
    pod_hints,
    release,
)
from klet.resources.metrics import CONTAINER_SCOPE, PHYSICAL_CPU, UNCORE_CACHE
from klet.resources.topology.hints import AllocationFailure, Hint, Hints
from klet.resources.topology.words import describe_hint

logger = logging.getLogger(__name__)

DECIDER: Final = "resources.cpu"
_SURPRISING: Final = frozenset({WhyShared.POD_LEVEL, WhyShared.NOT_WHOLE})
"""In a Guaranteed pod one may expect that containers have CPUs of their own."""


class CpuManager:
    """The static policy. Who has which CPUs is on the board, once it is on disk."""

    def __init__(
        self,
        *,
        policy: StaticPolicy,
        board: CpuBoard,
        store: StateStore[CpuManagerState],
        allocations: Allocations,
        holders: ResourceHolders,
        metrics: CpuManagerMetrics,
        recorder: CauseRecorder,
    ) -> None:
        self._policy = policy
        self._board = board
        self._store = store
        self._allocations = allocations
        self._holders = holders
        self._metrics = metrics
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._changing = asyncio.Lock()
        """Held from the decision until it is on disk, so that CPUs are given to one container only."""

    def pod_hints(self, pod: Pod) -> Hints:
        return pod_hints(self._policy, self._without_stale()[0], pod, self._allocations.of(pod))

    def container_hints(self, pod: Pod, container: Container) -> Hints:
        demand = find_demand(pod, self._allocations.of(pod), container.name)
        return container_hints(self._policy, self._without_stale()[0], demand)

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> AllocationFailure | None:
        """Give a container its CPUs; raises CheckpointError if that is not on disk: then it can be asked again."""
        demand = find_demand(pod, self._allocations.of(pod), container.name)
        if isinstance(demand, WhyShared):
            self._note_shared(pod, container, demand)
            return None
        self._metrics.pinning.requests.add()
        async with self._changing:
            state, released = self._without_stale()
            outcome = allocate(self._policy, state, demand, affinity)
            if isinstance(outcome, AllocationFailure):
                self._count_failure()
                return outcome
            try:
                await self._publish(outcome.state, released)
            except CheckpointError:
                self._count_failure()
                raise
        self._count(outcome)
        if outcome.is_new:
            self._note(pod, demand, outcome, affinity)
        return None

    async def release_stale(self) -> None:
        """Share the CPUs again of containers that are in no pod any more."""
        async with self._changing:
            state, released = self._without_stale()
            if not released:
                return
            try:
                await self._publish(state, released)
            except CheckpointError as error:
                # They stay with containers that are gone until the next try.
                logger.warning("CPUs of former containers are not released", extra={"error": str(error)})

    def _without_stale(self) -> tuple[CpuState, tuple[Released, ...]]:
        return release(self._board.state, self._holders.may_hold)

    async def _publish(self, state: CpuState, released: tuple[Released, ...]) -> None:
        await self._store.save(write_state(state, policy=STATIC))
        self._board.put(state)
        for gone in released:
            cpus = format_cpu_list(gone.cpus)
            self._decisions.about(FindingSubject(uid=gone.uid, container=gone.container)).record(
                Reason.EXCLUSIVE_CPUS_RELEASED,
                f"CPUs {cpus} are free again: the container is in no pod that may run",
                measurements={"cpus": cpus, "sharedCpus": format_cpu_list(state.shared)},
            )

    def _count(self, given: GivenCpus) -> None:
        if self._policy.options.full_cores:
            self._metrics.alignment.aligned.add(CONTAINER_SCOPE, PHYSICAL_CPU)
        if given.is_new and self._policy.topology.is_in_one_cache(given.cpus):
            self._metrics.alignment.aligned.add(CONTAINER_SCOPE, UNCORE_CACHE)

    def _count_failure(self) -> None:
        self._metrics.pinning.errors.add()
        if self._policy.options.full_cores:
            self._metrics.alignment.failed.add(CONTAINER_SCOPE, PHYSICAL_CPU)

    def _note(self, pod: Pod, demand: CpuDemand, given: GivenCpus, affinity: Hint) -> None:
        """Record which CPUs a container has, and why these."""
        cpus, nodes = format_cpu_list(given.cpus), format_cpu_list(self._policy.topology.nodes_of(given.cpus))
        whole = f"{demand.count} whole CPU{'s' if demand.count > 1 else ''}"
        reused = f", {format_cpu_list(given.reused)} of them from an init container" if given.reused else ""
        wanted = "" if affinity.mask is None else f", as near as possible to {describe_hint(affinity)}"
        measurements: dict[str, Measurement] = {
            "cpus": cpus,
            "requested": demand.count,
            "numaNodes": nodes,
            "sharedCpus": format_cpu_list(given.state.shared),
        }
        self._decisions.for_pod(pod, demand.container).record(
            Reason.EXCLUSIVE_CPUS,
            f"CPUs {cpus} for this container alone{reused}: its pod is Guaranteed and it requests {whole}{wanted}",
            measurements=measurements,
            next_step="move all other containers to the CPUs that are left",
        )

    def _note_shared(self, pod: Pod, container: Container, why: WhyShared) -> None:
        if why in _SURPRISING:
            self._decisions.for_pod(pod, container.name).record(
                Reason.SHARED_CPUS,
                f"no CPUs for this container alone: {why}",
                measurements={"sharedCpus": format_cpu_list(self._board.state.shared)},
            )
