"""Decides which running containers have to move to other CPUs (reconcileState). Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from klet.model.runtime import ContainerId, PodRuntimeStatus, RuntimeContainerState
from klet.resources.cpu.state import CpuState
from klet.resources.cpu.topology import CpuSet


class CpuChange(Struct, frozen=True, kw_only=True):
    """A running container, and the CPUs that the runtime is to keep it on."""

    pod: PodRuntimeStatus
    container: str
    container_id: ContainerId
    cpus: CpuSet
    is_exclusive: bool


class ReconcilePlan(Struct, frozen=True, kw_only=True):
    """What to send to the runtime, and which containers run, or have yet to start."""

    changes: tuple[CpuChange, ...]
    known: frozenset[ContainerId]


def plan_changes(
    state: CpuState, pods: Iterable[PodRuntimeStatus], applied: Mapping[ContainerId, CpuSet]
) -> ReconcilePlan:
    """Compare what running containers were last given with what they are to have.

    Every container that runs counts, those of pods that are being stopped and ephemeral ones as well: upstream leaves
    them on CPUs that another container has alone by now.
    """
    changes: list[CpuChange] = []
    known: set[ContainerId] = set()
    for pod in pods:
        known.update(each.id for each in pod.containers if each.state is not RuntimeContainerState.EXITED)
        for record in pod.running():
            own = state.of(pod.uid, record.name)
            cpus = state.shared if own is None else own
            # Without CPUs a container could not run at all.
            if cpus and applied.get(record.id) != cpus:
                changes.append(
                    CpuChange(
                        pod=pod,
                        container=record.name,
                        container_id=record.id,
                        cpus=cpus,
                        is_exclusive=own is not None,
                    )
                )
    # Those that leave the CPUs of others first.
    changes.sort(key=lambda change: change.is_exclusive)
    return ReconcilePlan(changes=tuple(changes), known=frozenset(known))


def count_by_node(state: CpuState, nodes: Mapping[int, CpuSet]) -> dict[int, int]:
    """Return how many CPUs of each NUMA node containers have alone; nodes without any are left out."""
    assigned = state.assigned
    counts = {node: len(cpus & assigned) for node, cpus in nodes.items()}
    return {node: count for node, count in counts.items() if count}
