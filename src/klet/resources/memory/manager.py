"""Gives containers of Guaranteed pods memory of their own NUMA nodes, and keeps a record on disk (memory manager)."""

import logging
from typing import Final

from klet.api.container import Container
from klet.api.pod import Pod
from klet.api.quantity import Format, Quantity
from klet.checkpoint.errors import CheckpointError
from klet.checkpoint.file import StateStore
from klet.checkpoint.upstream import MemoryManagerState
from klet.host.cpulist import format_cpu_list
from klet.model.allocation import Pins
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import Allocations, ResourceHolders
from klet.model.runtime import ContainerId
from klet.resources.memory.allocation import (
    GivenMemory,
    allocate_memory,
    earlier_init_containers,
    find_left_memory,
)
from klet.resources.memory.hints import compute_hints, regenerate_hints
from klet.resources.memory.requests import OddRequest, Requests, container_requests, has_own_memory, pod_requests
from klet.resources.memory.state_file import encode_state
from klet.resources.memory.tables import Blocks, MemoryState, remove_container
from klet.resources.metrics import PinningMetrics
from klet.resources.topology.hints import AllocationFailure, Hint, Hints

logger = logging.getLogger(__name__)

DECIDER: Final = "resources.memory"


class MemoryManager:
    """The static policy. What containers have, and what is left, is in `state`."""

    def __init__(
        self,
        *,
        state: MemoryState,
        store: StateStore[MemoryManagerState],
        allocations: Allocations,
        holders: ResourceHolders,
        has_pod_level_resources: bool,
        metrics: PinningMetrics,
        recorder: CauseRecorder,
    ) -> None:
        self._state = state
        self._store = store
        self._allocations = allocations
        self._holders = holders
        self._has_pod_level_resources = has_pod_level_resources
        self._metrics = metrics
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    @property
    def state(self) -> MemoryState:
        return self._state

    def pod_hints(self, pod: Pod) -> Hints:
        self._drop_stale()
        if not has_own_memory(pod, pod_level=self._has_pod_level_resources):
            return {}
        try:
            wanted = pod_requests(self._allocations.of(pod))
        except OddRequest:
            return {}
        # The hints are the same for all containers, so one that has its memory stands for all of them.
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            blocks = self._state.blocks_of(uid_of(pod), container.name)
            if blocks is not None:
                return regenerate_hints(blocks, wanted)
        return compute_hints(self._state.nodes, wanted, {})

    def container_hints(self, pod: Pod, container: Container) -> Hints:
        self._drop_stale()
        if not has_own_memory(pod, pod_level=self._has_pod_level_resources):
            return {}
        try:
            wanted = self._requests(pod, container)
        except OddRequest:
            return {}
        blocks = self._state.blocks_of(uid_of(pod), container.name)
        if blocks is not None:
            return regenerate_hints(blocks, wanted)
        return compute_hints(self._state.nodes, wanted, find_left_memory(self._state, pod, container.name))

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> AllocationFailure | None:
        """Give a container its memory; raises CheckpointError if that is not on disk: then it can be asked again."""
        self._drop_stale()
        if not has_own_memory(pod, pod_level=self._has_pod_level_resources):
            return None
        self._metrics.requests.add()
        given = self._give(pod, container, affinity)
        if isinstance(given, AllocationFailure):
            self._metrics.errors.add()
            return given
        # Before the first await, so that nobody else is given the same.
        self._state = given.state
        try:
            await self._save()
        except CheckpointError:
            self._metrics.errors.add()
            raise
        if given.is_new:
            self._note(pod, container, given.blocks)
        return None

    def pins_of(self, uid: PodUID, container: str) -> Pins:
        blocks = self._state.blocks_of(uid, container) or ()
        return Pins(memory_nodes=frozenset(node for block in blocks for node in block.numa_affinity or ()))

    async def before_start(
        self,
        pod: Pod,
        container: str,
        container_id: ContainerId,  # noqa: ARG002 - the role's
        cpus: frozenset[int],  # noqa: ARG002 - the role's
    ) -> None:
        """Take back the memory of init containers, which have ended when a container after them starts."""
        if not any(each.name == container for each in (*pod.spec.init_containers, *pod.spec.containers)):
            return  # an ephemeral container starts whenever somebody wants it
        before = self._state
        for name in earlier_init_containers(pod, container):
            self._state = remove_container(self._state, uid_of(pod), name)
        if self._state is not before:
            try:
                await self._save()
            except CheckpointError as error:
                # It is taken back again at the next start of the container, should the agent be restarted before.
                logger.warning("Memory of init containers is not recorded as free", extra={"error": str(error)})

    def _give(self, pod: Pod, container: Container, affinity: Hint) -> GivenMemory | AllocationFailure:
        try:
            wanted = self._requests(pod, container)
        except OddRequest as error:
            return AllocationFailure(str(error))
        return allocate_memory(self._state, pod, container, wanted=wanted, affinity=affinity)

    def _requests(self, pod: Pod, container: Container) -> Requests:
        return container_requests(self._allocations.of(pod).of(container.name))

    def _drop_stale(self) -> None:
        """Take back what containers had that are in no pod any more; it is put on disk with the next allocation."""
        for uid, containers in self._state.entries.items():
            for container in containers:
                # What no kubelet of this machine can have written is nobody's.
                if not isinstance(uid, PodUID) or not self._holders.may_hold(uid, container):
                    self._state = remove_container(self._state, uid, container)

    async def _save(self) -> None:
        await self._store.save(encode_state(self._state))

    def _note(self, pod: Pod, container: Container, blocks: Blocks) -> None:
        sizes = ", ".join(f"{Quantity.of(block.size, Format.BINARY_SI)} of {block.type}" for block in blocks)
        nodes = format_cpu_list(self.pins_of(uid_of(pod), container.name).memory_nodes)
        self._decisions.for_pod(pod, container.name).record(
            Reason.MEMORY_ALLOCATED,
            f"{sizes} from NUMA nodes {nodes}",
            measurements={"numaNodes": nodes, **{block.type: block.size for block in blocks}},
        )
