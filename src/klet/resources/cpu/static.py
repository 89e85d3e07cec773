"""Decides which containers get CPUs of their own, and which ones (static policy). Pure: from one state to the next."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.pod import Pod
from klet.api.quantity import ZERO
from klet.model.allocation import PodAllocation
from klet.model.pod_resources import CPU, has_pod_level_resources
from klet.model.pods import PodUID, uid_of
from klet.model.qos import QosClass, qos_of
from klet.model.reasons import Reason
from klet.resources.cpu.hints import compute_hints
from klet.resources.cpu.packed import TooFewCpus
from klet.resources.cpu.policy import StaticPolicy
from klet.resources.cpu.state import CpuState
from klet.resources.cpu.topology import CpuSet
from klet.resources.topology.hints import AllocationFailure, Hint, Hints, NumaMask, nodes_of

NO_PREFERENCE: Final[Hints] = {}
IMPOSSIBLE: Final[Hints] = {CPU: ()}


class WhyShared(StrEnum):
    """Why a container has no CPUs of its own."""

    QOS = "the pod is not Guaranteed"
    POD_LEVEL = "the pod has resources of its own, beside those of its containers"
    NOT_WHOLE = "it requests no whole number of CPUs"
    NOTHING = "it requests no CPU"


class CpuDemand(Struct, frozen=True, kw_only=True):
    """The whole CPUs that a container is to have alone."""

    uid: PodUID
    container: str
    count: int
    donors: frozenset[str] = frozenset()
    """The plain init containers of its pod: each ends before the next container starts, which gets its CPUs."""


class GivenCpus(Struct, frozen=True, kw_only=True):
    """A container has CPUs of its own."""

    state: CpuState
    cpus: CpuSet
    is_new: bool
    """Whether it has them since now."""
    reused: CpuSet = frozenset()
    """Those of them that an init container had."""


class Released(Struct, frozen=True):
    """A container that has its CPUs no more."""

    uid: PodUID
    container: str
    cpus: CpuSet


Outcome: TypeAlias = GivenCpus | AllocationFailure


def find_demand(pod: Pod, allocation: PodAllocation, container: str) -> CpuDemand | WhyShared:
    """Return the CPUs that a container is to have alone, or why it has none (guaranteedCPUs)."""
    if qos_of(pod) is not QosClass.GUARANTEED:
        return WhyShared.QOS
    count = _whole_cpus(allocation, container)
    if count is None:
        return WhyShared.NOT_WHOLE
    if not count:
        return WhyShared.NOTHING
    if has_pod_level_resources(allocation):
        return WhyShared.POD_LEVEL
    donors = frozenset(each.name for each in allocation.init_containers if not each.is_sidecar)
    return CpuDemand(uid=uid_of(pod), container=container, count=count, donors=donors)


def allocate(policy: StaticPolicy, state: CpuState, demand: CpuDemand, affinity: Hint) -> Outcome:
    """Give a container its CPUs, near the NUMA nodes of the affinity. What it has already it keeps (Allocate).

    A container that has its CPUs keeps them although its pod would not fit now. Upstream rejects such a pod with whole
    cores when it is admitted again, as after a restart.
    """
    per_core = policy.topology.cpus_per_core
    if policy.options.full_cores and demand.count % per_core:
        return AllocationFailure(
            f"SMT Alignment Error: requested {demand.count} cpus not multiple cpus per core = {per_core}",
            Reason.SMT_ALIGNMENT_ERROR,
        )
    held = state.of(demand.uid, demand.container)
    if held is not None:
        return GivenCpus(state=_note_reuse(state, demand, held), cpus=held, is_new=False)
    if policy.options.full_cores and demand.count > (free := len(state.shared - policy.reserved_cores)):
        return AllocationFailure(
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, "
            f"requested CPUs = {demand.count}, CPUs per core = {per_core}",
            Reason.SMT_ALIGNMENT_ERROR,
        )
    reusable = state.reusable_for(demand.uid)
    cpus = choose_cpus(policy, (state.shared - policy.reserved) | reusable, demand.count, affinity.mask)
    if isinstance(cpus, TooFewCpus):
        return AllocationFailure(cpus.message)
    given = state.with_container(demand.uid, demand.container, cpus)
    return GivenCpus(state=_note_reuse(given, demand, cpus), cpus=cpus, is_new=True, reused=cpus & reusable)


def choose_cpus(policy: StaticPolicy, available: CpuSet, count: int, mask: NumaMask | None) -> CpuSet | TooFewCpus:
    """Return so many of the available CPUs, as many of them as possible near the NUMA nodes (allocateCPUs)."""
    taken: CpuSet = frozenset()
    if mask is not None:
        near = policy.near(available, frozenset(nodes_of(mask)))
        found = policy.take(near, min(count, len(near)))
        if isinstance(found, TooFewCpus):
            return found
        taken = found
    rest = policy.take(available - taken, count - len(taken))
    return rest if isinstance(rest, TooFewCpus) else taken | rest


def release(state: CpuState, may_hold: Callable[[PodUID, str], bool]) -> tuple[CpuState, tuple[Released, ...]]:
    """Take CPUs back from containers that may not hold them any more (removeStaleState)."""
    released = tuple(
        Released(uid, container, cpus)
        for uid, each in state.exclusive.items()
        for container, cpus in each.items()
        if not may_hold(uid, container)
    )
    for gone in released:
        state = state.without_container(gone.uid, gone.container)
    return state, released


def container_hints(policy: StaticPolicy, state: CpuState, demand: CpuDemand | WhyShared) -> Hints:
    """Return where the CPUs of a container could come from (GetTopologyHints)."""
    if isinstance(demand, WhyShared):
        return NO_PREFERENCE
    held = state.of(demand.uid, demand.container)
    if held is None:
        return _hints(policy, state.shared - policy.reserved, state.reusable_for(demand.uid), demand.count)
    if len(held) != demand.count:
        return IMPOSSIBLE
    return _hints(policy, held, frozenset(), demand.count)


def pod_hints(policy: StaticPolicy, state: CpuState, pod: Pod, allocation: PodAllocation) -> Hints:
    """Return where the CPUs of all containers of a pod could come from together (GetPodTopologyHints)."""
    count = count_pod_cpus(pod, allocation)
    if not count or has_pod_level_resources(allocation):
        return NO_PREFERENCE
    uid, held = uid_of(pod), frozenset[int]()
    for each in (*allocation.init_containers, *allocation.containers):
        own = state.of(uid, each.name)
        if own is None:
            continue
        if len(own) != (_whole_cpus(allocation, each.name) or 0):
            return IMPOSSIBLE
        held |= own
    if len(held) == count:
        return _hints(policy, held, frozenset(), count)
    return _hints(policy, state.shared - policy.reserved, state.reusable_for(uid) | held, count)


def count_pod_cpus(pod: Pod, allocation: PodAllocation) -> int:
    """Return how many CPUs the containers of a pod need alone at one time at most (podGuaranteedCPUs)."""
    if qos_of(pod) is not QosClass.GUARANTEED:
        return 0
    sidecars = most = 0
    for each in allocation.init_containers:
        own = _whole_cpus(allocation, each.name) or 0
        if each.is_sidecar:
            sidecars += own
        else:
            most = max(most, sidecars + own)
    return max(most, sidecars + sum(_whole_cpus(allocation, each.name) or 0 for each in allocation.containers))


def _hints(policy: StaticPolicy, available: CpuSet, reusable: CpuSet, count: int) -> Hints:
    return {CPU: compute_hints(policy.topology, available, reusable, count, by_socket=policy.options.by_socket)}


def _whole_cpus(allocation: PodAllocation, container: str) -> int | None:
    """Return how many CPUs a container requests; None if it is no whole number."""
    wanted = allocation.of(container).requests.get(CPU, ZERO)
    return None if wanted.value() * 1000 != wanted.milli_value() else wanted.value()


def _note_reuse(state: CpuState, demand: CpuDemand, cpus: CpuSet) -> CpuState:
    """Note which CPUs the next container of the pod can have again (updateCPUsToReuse)."""
    reusable = state.reusable_for(demand.uid)
    if demand.container in demand.donors:
        reusable |= cpus
    # Also those of containers after it, when a pod is asked about again.
    kept = (own for name, own in state.exclusive[demand.uid].items() if name not in demand.donors)
    return replace(state, reusable=reusable.difference(*kept), reusable_by=demand.uid)
