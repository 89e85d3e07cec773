"""Metrics of what was measured on disks."""

from typing import Final

from klet.metrics import FewValues, Histogram, MetricRegistry
from klet.model.volumes import UsageSource

_MOST_DRIVERS: Final = 32
_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def register_volume_durations(registry: MetricRegistry) -> Histogram:
    return registry.histogram(
        "kubelet_volume_metric_collection_duration_seconds",
        "Duration in seconds to calculate volume stats",
        _BOUNDS,
        (FewValues("metric_source", len(UsageSource) + _MOST_DRIVERS),),
    )
