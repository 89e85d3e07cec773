"""Metrics of volumes: operations on them, and how many there are (upstream's storage metrics)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.metrics import Counter, FewValues, Histogram, Label, MetricRegistry, Reading
from klet.volumes.operations import Operation
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import VolumeBoards

MOUNTED: Final = "overall_volume_mount"
_BOUNDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
_MOST_PLUGINS: Final = 64
"""Upstream's own are few; the drivers of a node add theirs."""


class MeasuredKind(Struct, frozen=True):
    """A kind of volumes as metrics name it."""

    name: str
    is_migrated: bool = False
    """Its volumes are of an in-tree kind that a CSI driver has taken over."""


def kind_of(plugin: VolumePlugin, spec: VolumeSpec | None) -> MeasuredKind:
    """Return the kind of a volume: that of a CSI driver is named after the driver."""
    if spec is None:
        return MeasuredKind(plugin.name)
    csi = spec.volume.csi if spec.persistent is None else spec.persistent.spec.csi
    return MeasuredKind(plugin.name if csi is None else f"{plugin.name}:{csi.driver}", is_migrated=spec.is_migrated)


class LeftCounters(Struct, frozen=True, kw_only=True):
    """What becomes of volumes that a previous run of the agent left."""

    read: Counter
    unreadable: Counter
    cleaned: Counter
    """Those that lead to no volume, and are torn down by their name."""
    not_cleaned: Counter


class VolumeMetrics(Struct, frozen=True, kw_only=True):
    """Operations on volumes."""

    operations: Histogram
    whole: Histogram
    """From the moment a pod should have a volume to the moment it has it."""
    left: "LeftCounters"

    @contextmanager
    def measured(self, kind: MeasuredKind, operation: Operation, clock: Clock) -> Iterator[None]:
        """Count one operation, and how long it takes."""
        began, status = clock.monotonic(), "fail-unknown"
        try:
            yield
            status = "success"
        finally:
            migrated = "true" if kind.is_migrated else "false"
            self.operations.observe(clock.monotonic() - began, kind.name, operation, status, migrated)

    def mounted(self, kind: MeasuredKind, *, seconds: float) -> None:
        self.whole.observe(seconds, kind.name, MOUNTED)


def register_volumes(registry: MetricRegistry) -> VolumeMetrics:
    return VolumeMetrics(
        operations=registry.histogram(
            "storage_operation_duration_seconds",
            "How long an operation on a volume took.",
            _BOUNDS,
            (
                FewValues("volume_plugin", _MOST_PLUGINS),
                Label("operation_name", frozenset(Operation)),
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
        left=LeftCounters(
            read=registry.counter(
                "reconstruct_volume_operations_total", "Volumes of a previous run that were read from the disk."
            ),
            unreadable=registry.counter(
                "reconstruct_volume_operations_errors_total", "Volumes of a previous run that could not be read."
            ),
            cleaned=registry.counter(
                "force_cleaned_failed_volume_operations_total",
                "Unmounts of volumes of a previous run that could not be read.",
            ),
            not_cleaned=registry.counter(
                "force_cleaned_failed_volume_operation_errors_total", "Unmounts of such volumes that failed."
            ),
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
