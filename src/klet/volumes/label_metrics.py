"""Metrics of volumes that could be mounted with a SELinux label: where pods disagree, and whether that matters yet.

An error keeps a pod from its volume. A warning would, if the gate SELinuxMount were on.
"""

from typing import Final

from msgspec import Struct

from klet.metrics import FewValues, Gauge, Label, MetricRegistry
from klet.volumes.spec import VolumeSpec

_MOST_PLUGINS: Final = 64
_PREFIX: Final = "volume_manager_selinux"
INLINE: Final = "inline"
_MODES: Final = {"ReadWriteMany": "RWX", "ReadOnlyMany": "ROX", "ReadWriteOnce": "RWO", "ReadWriteOncePod": "RWOP"}
"""The first of these that a volume has counts."""


class LabelMetrics(Struct, frozen=True, kw_only=True):
    """What becomes of the labels of pods."""

    pod_errors: Gauge
    pod_warnings: Gauge
    volume_errors: Gauge
    volume_warnings: Gauge
    admitted: Gauge

    def containers_disagree(self, spec: VolumeSpec, *, is_error: bool) -> None:
        """Count a pod whose containers have several labels for one volume."""
        (self.pod_errors if is_error else self.pod_warnings).add(access_mode(spec))

    def pods_disagree(self, spec: VolumeSpec, plugin: str, *, is_error: bool) -> None:
        """Count a pod with another label than one that has the volume already."""
        metric = self.volume_errors if is_error else self.volume_warnings
        metric.add(access_mode(spec), plugin_label(spec, plugin))

    def admit(self, spec: VolumeSpec, plugin: str) -> None:
        """Count a volume whose first pod has a label."""
        self.admitted.add(access_mode(spec), plugin_label(spec, plugin))


def access_mode(spec: VolumeSpec) -> str:
    """Return which access mode a volume counts under."""
    if spec.persistent is None:
        return INLINE
    found = spec.persistent.spec.access_modes
    return next((short for mode, short in _MODES.items() if mode in found), "")


def plugin_label(spec: VolumeSpec, plugin: str) -> str:
    """Return the plugin as these metrics name it; all others have a colon before the driver."""
    csi = spec.volume.csi if spec.persistent is None else spec.persistent.spec.csi
    return plugin if csi is None else f"{plugin}/{csi.driver}"


def register_labels(registry: MetricRegistry) -> LabelMetrics:
    """Register them, on a machine with SELinux."""
    mode = Label("access_mode", frozenset({INLINE, *_MODES.values()}))
    both = mode, FewValues("volume_plugin", _MOST_PLUGINS)
    # Of labels that the options of a container cannot be made into; here they always can.
    for name in ("errors", "warnings"):
        registry.gauge(f"{_PREFIX}_container_{name}_total", f"Containers without a valid label ({name}).", (mode,))
    return LabelMetrics(
        pod_errors=registry.gauge(
            f"{_PREFIX}_pod_context_mismatch_errors_total",
            "Pods that cannot have a volume because their containers have several labels.",
            (mode,),
        ),
        pod_warnings=registry.gauge(
            f"{_PREFIX}_pod_context_mismatch_warnings_total",
            "Pods whose containers have several labels for a volume that is not mounted with one yet.",
            (mode,),
        ),
        volume_errors=registry.gauge(
            f"{_PREFIX}_volume_context_mismatch_errors_total",
            "Pods that cannot have a volume because another pod has it with another label.",
            both,
        ),
        volume_warnings=registry.gauge(
            f"{_PREFIX}_volume_context_mismatch_warnings_total",
            "Pods with another label than one that has the same volume, which is not mounted with a label yet.",
            both,
        ),
        admitted=registry.gauge(f"{_PREFIX}_volumes_admitted_total", "Volumes whose first pod has a label.", both),
    )
