"""Metrics of the CPU manager."""

from collections.abc import Mapping

from msgspec import Struct

from klet.metrics import MetricRegistry, ObjectName
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.reconcile import count_by_node
from klet.resources.cpu.topology import CpuSet
from klet.resources.metrics import CONTAINER_SCOPE, PHYSICAL_CPU, UNCORE_CACHE, AlignmentMetrics, PinningMetrics

_MILLI = 1000


class CpuManagerMetrics(Struct, frozen=True, kw_only=True):
    """What the CPU manager counts."""

    pinning: PinningMetrics
    alignment: AlignmentMetrics


def register_cpu_pinning(registry: MetricRegistry) -> PinningMetrics:
    return PinningMetrics(
        requests=registry.counter(
            "kubelet_cpu_manager_pinning_requests_total", "Allocations of CPUs to one container alone."
        ),
        errors=registry.counter(
            "kubelet_cpu_manager_pinning_errors_total", "Allocations of CPUs to one container alone that failed."
        ),
    )


def register_cpus(registry: MetricRegistry, board: CpuBoard, nodes: Mapping[int, CpuSet]) -> None:
    """Register what is computed from the board on a scrape; `nodes` are the CPUs of each NUMA node."""
    registry.computed(
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "The CPUs that containers share, without reserved ones, in thousandths.",
        lambda: {(): len(board.free) * _MILLI},
    )
    registry.computed(
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "The CPUs that containers have alone.",
        lambda: {(): len(board.state.assigned)},
    )
    registry.computed(
        "kubelet_cpu_manager_allocation_per_numa",
        "The CPUs that containers have alone, by NUMA node.",
        lambda: {(str(node),): count for node, count in count_by_node(board.state, nodes).items()},
        (ObjectName("numa_node"),),
    )


def begin_alignment(alignment: AlignmentMetrics) -> None:
    """Show the series of the CPU manager before there is anything to count."""
    alignment.aligned.add(CONTAINER_SCOPE, PHYSICAL_CPU, by=0)
    alignment.aligned.add(CONTAINER_SCOPE, UNCORE_CACHE, by=0)
    alignment.failed.add(CONTAINER_SCOPE, PHYSICAL_CPU, by=0)
