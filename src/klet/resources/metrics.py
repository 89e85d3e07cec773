"""Metrics of the topology manager and the memory manager, and those that they share with the CPU manager."""

from typing import Final

from msgspec import Struct

from klet.metrics import Counter, Histogram, Label, MetricRegistry

NUMA_NODE: Final = "numa_node"
PHYSICAL_CPU: Final = "physical_cpu"
UNCORE_CACHE: Final = "uncore_cache"
CONTAINER_SCOPE: Final = "container"
POD_SCOPE: Final = "pod"

_SCOPE: Final = Label("scope", frozenset({CONTAINER_SCOPE, POD_SCOPE}))
_BOUNDARY: Final = Label("boundary", frozenset({PHYSICAL_CPU, NUMA_NODE, UNCORE_CACHE}))
_DURATIONS: Final = tuple(0.05 * 2**power for power in range(15))


class AlignmentMetrics(Struct, frozen=True, kw_only=True):
    """How often what was allocated kept within a boundary of the machine, by scope and boundary, and how often not."""

    aligned: Counter
    failed: Counter


class TopologyMetrics(Struct, frozen=True, kw_only=True):
    """Pods that the topology manager was asked about, those that it rejected, and how long that took."""

    requests: Counter
    errors: Counter
    duration: Histogram


class PinningMetrics(Struct, frozen=True, kw_only=True):
    """Allocations to one container alone, and those that failed."""

    requests: Counter
    errors: Counter


def register_alignment(registry: MetricRegistry) -> AlignmentMetrics:
    labels = (_SCOPE, _BOUNDARY)
    return AlignmentMetrics(
        aligned=registry.counter(
            "kubelet_container_aligned_compute_resources_count",
            "Allocations that kept within a boundary of the machine.",
            labels,
        ),
        failed=registry.counter(
            "kubelet_container_aligned_compute_resources_failure_count",
            "Allocations that could not keep within a boundary of the machine.",
            labels,
        ),
    )


def register_topology(registry: MetricRegistry) -> TopologyMetrics:
    return TopologyMetrics(
        requests=registry.counter(
            "kubelet_topology_manager_admission_requests_total", "Pods whose resources had to be allocated."
        ),
        errors=registry.counter(
            "kubelet_topology_manager_admission_errors_total", "Pods whose resources could not be aligned."
        ),
        duration=registry.histogram(
            "kubelet_topology_manager_admission_duration_ms", "Milliseconds to allocate a pod's resources.", _DURATIONS
        ),
    )


def register_memory_pinning(registry: MetricRegistry) -> PinningMetrics:
    return PinningMetrics(
        requests=registry.counter(
            "kubelet_memory_manager_pinning_requests_total", "Allocations of memory on NUMA nodes."
        ),
        errors=registry.counter(
            "kubelet_memory_manager_pinning_errors_total", "Allocations of memory on NUMA nodes that failed."
        ),
    )
