"""Metrics of statuses."""

from typing import Final

from klet.metrics import Histogram, MetricRegistry

_BOUNDS: Final = (0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60)


def register_statuses(registry: MetricRegistry) -> Histogram:
    return registry.histogram(
        "kubelet_pod_status_sync_duration_seconds",
        "From the change of a pod's status to the moment the API server has it.",
        _BOUNDS,
    )
