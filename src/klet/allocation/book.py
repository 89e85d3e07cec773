"""The board of what pods have been given (allocation manager): resources admitted and actuated, by pod.

Each kind has one writer: admission writes what was *admitted* (`sync/admission.py`); the container creator and the
cgroup step write their parts of what was *actuated* (`runtime/creation.py`, `sync/cgroup_step.py`). What is *actual*
stands in the runtime's view of a pod, and `view` puts it beside the others. Upstream keeps admitted and actuated in
checkpoints besides (`allocated_pods_state`, `actuated_pods_state`). klet does not yet: a later run knows what was
admitted from the reported status, and of actuated nothing until it creates a container.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.allocation.admitted import compute_admitted
from klet.api.container import ResourceRequirements
from klet.api.pod import Pod
from klet.model.allocation import Actuated, PodAllocation, PodResources
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import GivenResources, PodRuntimeStatus


class _Entry(Struct, frozen=True, kw_only=True):
    admitted: PodAllocation | None = None
    actuated: Actuated = Actuated()


_EMPTY: Final = _Entry()


class AllocationBook:
    """What each pod has been given."""

    def __init__(self) -> None:
        self._entries: dict[PodUID, _Entry] = {}

    def of(self, pod: Pod) -> PodAllocation:
        """Return what a pod was admitted with; for one that was not asked about, what it would be admitted with."""
        admitted = self._entries.get(uid_of(pod), _EMPTY).admitted
        return admitted if admitted is not None else compute_admitted(pod)

    def view(self, pod: Pod, seen: PodRuntimeStatus) -> PodResources:
        """Return everything that is known of a pod's resources, with what the runtime shows."""
        actuated = self._entries.get(uid_of(pod), _EMPTY).actuated
        return PodResources(admitted=self.of(pod), actuated=actuated, actual=actual_resources(seen))

    def pods(self) -> frozenset[PodUID]:
        return frozenset(self._entries)

    def admit(self, uid: PodUID, allocation: PodAllocation) -> None:
        """Give a pod its resources. Called by admission only."""
        self._entries[uid] = replace(self._entries.get(uid, _EMPTY), admitted=allocation)

    def record_creation(self, uid: PodUID, container: str, resources: ResourceRequirements) -> None:
        """Note the resources of a created container. Called by the container creator only."""
        entry = self._entries.get(uid, _EMPTY)
        containers = {**entry.actuated.containers, container: resources}
        self._entries[uid] = replace(entry, actuated=replace(entry.actuated, containers=containers))

    def record_cgroup(self, uid: PodUID, allocation: PodAllocation) -> None:
        """Note the values of the pod's cgroup. Called by the cgroup step only."""
        entry = self._entries.get(uid, _EMPTY)
        self._entries[uid] = replace(entry, actuated=replace(entry.actuated, cgroup=allocation))

    def forget(self, uid: PodUID) -> None:
        """Drop a pod that is gone."""
        self._entries.pop(uid, None)


def actual_resources(seen: PodRuntimeStatus) -> dict[str, GivenResources]:
    """Return what the newest container of each name has; no entry where the runtime does not say."""
    newest = {record.name: record.resources for record in reversed(seen.containers)}
    return {name: given for name, given in newest.items() if given is not None}
