"""Decides what all pods together, the system and Kubernetes get of the node (node allocatable in cgroups). Pure."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from klet.api.quantity import ZERO, Quantity
from klet.host.cgroups.resources import HUGEPAGES_UNBOUNDED, CgroupResources, shares_from_millicpu
from klet.model.pod_resources import CPU, MEMORY, PID, hugepage_amounts, memory_bytes, millicpu

Amounts = Mapping[str, Quantity]


class Enforcement(StrEnum):
    """What of node allocatable is enforced with cgroups (`enforceNodeAllocatable`)."""

    PODS = "pods"
    SYSTEM_RESERVED = "system-reserved"
    KUBE_RESERVED = "kube-reserved"
    SYSTEM_RESERVED_COMPRESSIBLE = "system-reserved-compressible"
    KUBE_RESERVED_COMPRESSIBLE = "kube-reserved-compressible"


class NodeAllocatableRules(Struct, frozen=True, kw_only=True):
    """What the node has, what is reserved of it, and how much of that is enforced."""

    capacity: Amounts = field(default_factory=dict)
    """CPU, memory, huge pages, and how many processes the kernel allows."""
    system_reserved: Amounts = field(default_factory=dict)
    kube_reserved: Amounts = field(default_factory=dict)
    enforced: frozenset[Enforcement] = frozenset()
    system_cgroup: str = ""
    """As configured (`systemReservedCgroup`)."""
    kube_cgroup: str = ""
    cpus: str = ""
    """All CPUs, where no CPU manager chooses among them; empty: cpusets are left alone."""
    has_classes: bool = True
    """Whether the pods' cgroup is shared out among the QoS classes (`cgroupsPerQOS`)."""
    memory_qos: bool = False


class ReservedCgroup(Struct, frozen=True, kw_only=True):
    """A cgroup that is there before the agent, and what it is limited to."""

    path: str
    title: str
    """As messages of failures have it: `System Reserved Compressible`."""
    owner: str
    """As messages of success have it: `system reserved`."""
    values: CgroupResources | None
    """None: nothing is reserved, so there is nothing to enforce."""


_RESERVED: Final = (
    (Enforcement.SYSTEM_RESERVED, "System Reserved"),
    (Enforcement.KUBE_RESERVED, "Kube Reserved"),
    (Enforcement.SYSTEM_RESERVED_COMPRESSIBLE, "System Reserved Compressible"),
    (Enforcement.KUBE_RESERVED_COMPRESSIBLE, "Kube Reserved Compressible"),
)
"""In the order in which upstream enforces them."""
_OF_SYSTEM: Final = frozenset({Enforcement.SYSTEM_RESERVED, Enforcement.SYSTEM_RESERVED_COMPRESSIBLE})
_COMPRESSIBLE: Final = frozenset({Enforcement.SYSTEM_RESERVED_COMPRESSIBLE, Enforcement.KUBE_RESERVED_COMPRESSIBLE})


def compute_allocatable_limits(rules: NodeAllocatableRules) -> Amounts:
    """Return what all pods together may use. What evictions keep free is not subtracted: they need it to act."""
    if Enforcement.PODS not in rules.enforced:
        return rules.capacity
    left = {
        name: has - rules.system_reserved.get(name, ZERO) - rules.kube_reserved.get(name, ZERO)
        for name, has in rules.capacity.items()
    }
    return {name: amount if amount.sign > 0 else ZERO for name, amount in left.items()}


def compute_root_values(rules: NodeAllocatableRules) -> CgroupResources:
    """Return what is written to the cgroup of all pods.

    Among QoS classes its huge pages are not limited, as guaranteed pods live directly in it: every write carries them,
    and upstream limits them for the moment between its two writes.
    """
    amounts = compute_allocatable_limits(rules)
    values = _values(amounts, rules)
    if not rules.has_classes:
        return values
    return replace(values, hugepages=dict.fromkeys(values.hugepages, HUGEPAGES_UNBOUNDED))


def plan_reserved(rules: NodeAllocatableRules) -> Iterator[ReservedCgroup]:
    """Yield the reserved cgroups to limit, in upstream's order."""
    for level, title in _RESERVED:
        if level not in rules.enforced:
            continue
        is_system = level in _OF_SYSTEM
        amounts = rules.system_reserved if is_system else rules.kube_reserved
        yield ReservedCgroup(
            path=rules.system_cgroup if is_system else rules.kube_cgroup,
            title=title,
            owner="system reserved" if is_system else "kube reserved",
            values=_reserved_values(amounts, rules, only_cpu=level in _COMPRESSIBLE) if amounts else None,
        )


def _reserved_values(amounts: Amounts, rules: NodeAllocatableRules, *, only_cpu: bool) -> CgroupResources:
    if only_cpu:
        amounts = {name: amount for name, amount in amounts.items() if name == CPU}
    values = _values(amounts, rules)
    return replace(values, memory_min=values.memory_limit if rules.memory_qos else None)


def _values(amounts: Amounts, rules: NodeAllocatableRules) -> CgroupResources:
    return CgroupResources(
        cpu_shares=shares_from_millicpu(millicpu(amounts)) if CPU in amounts else None,
        cpuset=rules.cpus or None,
        memory_limit=memory_bytes(amounts) if MEMORY in amounts else None,
        pids_limit=amounts[PID].value() if PID in amounts else None,
        hugepages=hugepage_amounts(amounts),
    )
