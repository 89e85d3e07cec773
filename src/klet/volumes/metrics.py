"""Metrics of volumes: operations on them, and how many there are (upstream's storage metrics)."""

from typing import Final

from msgspec import Struct

from klet.metrics import FewValues, Histogram, Label, MetricRegistry, Reading
from klet.volumes.state import VolumeBoards

MOUNTED: Final = "overall_volume_mount"
_BOUNDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
_MOST_PLUGINS: Final = 64
"""Upstream's own are few; the drivers of a node add theirs."""


class VolumeMetrics(Struct, frozen=True, kw_only=True):
    """Operations on volumes."""

    operations: Histogram
    whole: Histogram
    """From the moment a pod should have a volume to the moment it has it."""

    def note(self, plugin: str, operation: str, *, seconds: float, is_done: bool) -> None:
        """Count one operation. Nothing here was migrated: upstream's in-tree plugins that it moves to CSI are not."""
        self.operations.observe(seconds, plugin, operation, "success" if is_done else "fail-unknown", "false")


def register_volumes(registry: MetricRegistry) -> VolumeMetrics:
    operations = Label("operation_name", frozenset({"volume_mount", "volume_unmount"}))
    return VolumeMetrics(
        operations=registry.histogram(
            "storage_operation_duration_seconds",
            "How long an operation on a volume took.",
            _BOUNDS,
            (
                FewValues("volume_plugin", _MOST_PLUGINS),
                operations,
                Label("status", frozenset({"success", "fail-unknown"})),
                Label("migrated", frozenset({"true", "false"})),
            ),
        ),
        whole=registry.histogram(
            "volume_operation_total_seconds",
            "From the moment a pod should have a volume to the moment it has it.",
            _BOUNDS,
            (FewValues("plugin_name", _MOST_PLUGINS), Label("operation_name", frozenset({MOUNTED}))),
        ),
    )


def register_volume_counts(registry: MetricRegistry, boards: VolumeBoards) -> None:
    """Register how many volumes there should be and are; they are counted at a scrape."""

    def count() -> Reading:
        counts: dict[tuple[str, ...], float] = {}
        for state, mounts in (
            ("desired_state_of_world", boards.desired.all()),
            ("actual_state_of_world", boards.actual.all()),
        ):
            for mount in mounts:
                key = mount.plugin.name, state
                counts[key] = counts.get(key, 0) + 1
        return counts

    registry.computed(
        "volume_manager_total_volumes",
        "Volumes of pods that should be there, and that are there.",
        count,
        (
            FewValues("plugin_name", _MOST_PLUGINS),
            Label("state", frozenset({"desired_state_of_world", "actual_state_of_world"})),
        ),
    )
