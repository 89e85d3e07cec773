"""Metrics of calls to the runtime (upstream: the instrumented runtime and image services)."""

from typing import Final

from msgspec import Struct

from klet.cri import calls
from klet.metrics import Counter, Histogram, Label, MetricRegistry

OPERATIONS: Final = {
    calls.VERSION.path: "version",
    calls.STATUS.path: "status",
    calls.CREATE_CONTAINER.path: "create_container",
    calls.START_CONTAINER.path: "start_container",
    calls.STOP_CONTAINER.path: "stop_container",
    calls.REMOVE_CONTAINER.path: "remove_container",
    calls.LIST_CONTAINERS.path: "list_containers",
    calls.CONTAINER_STATUS.path: "container_status",
    calls.UPDATE_CONTAINER_RESOURCES.path: "update_container",
    calls.REOPEN_CONTAINER_LOG.path: "reopen_container_log",
    calls.EXEC_SYNC.path: "exec_sync",
    calls.EXEC.path: "exec",
    calls.ATTACH.path: "attach",
    calls.RUN_POD_SANDBOX.path: "run_podsandbox",
    calls.STOP_POD_SANDBOX.path: "stop_podsandbox",
    calls.REMOVE_POD_SANDBOX.path: "remove_podsandbox",
    calls.POD_SANDBOX_STATUS.path: "podsandbox_status",
    calls.LIST_POD_SANDBOX.path: "list_podsandbox",
    calls.CONTAINER_STATS.path: "container_stats",
    calls.LIST_CONTAINER_STATS.path: "list_container_stats",
    calls.POD_SANDBOX_STATS.path: "podsandbox_stats",
    calls.LIST_POD_SANDBOX_STATS.path: "list_podsandbox_stats",
    calls.PORT_FORWARD.path: "port_forward",
    calls.UPDATE_POD_SANDBOX_RESOURCES.path: "update_podsandbox_resources",
    calls.UPDATE_RUNTIME_CONFIG.path: "update_runtime_config",
    calls.LIST_IMAGES.path: "list_images",
    calls.IMAGE_STATUS.path: "image_status",
    calls.PULL_IMAGE.path: "pull_image",
    calls.REMOVE_IMAGE.path: "remove_image",
    calls.IMAGE_FS_INFO.path: "image_fs_info",
    calls.CHECKPOINT_CONTAINER.path: "checkpoint_container",
    calls.GET_CONTAINER_EVENTS.path: "get_container_events",
    calls.LIST_METRIC_DESCRIPTORS.path: "list_metric_descriptors",
    calls.LIST_POD_SANDBOX_METRICS.path: "list_podsandbox_metrics",
    calls.RUNTIME_CONFIG.path: "runtime_config",
}
"""By method of the CRI, upstream's word for it."""
_LABEL: Final = Label("operation_type", frozenset(OPERATIONS.values()))
_BOUNDS: Final = tuple(round(0.005 * 2.5**power, 9) for power in range(14))


class RuntimeCallMetrics(Struct, frozen=True):
    """Calls, how long they took, and those that failed."""

    total: Counter
    duration: Histogram
    errors: Counter


def register_runtime_calls(registry: MetricRegistry) -> RuntimeCallMetrics:
    return RuntimeCallMetrics(
        total=registry.counter("kubelet_runtime_operations_total", "Calls of the container runtime.", (_LABEL,)),
        duration=registry.histogram(
            "kubelet_runtime_operations_duration_seconds",
            "How long calls of the container runtime took.",
            _BOUNDS,
            (_LABEL,),
        ),
        errors=registry.counter(
            "kubelet_runtime_operations_errors_total", "Calls of the container runtime that failed.", (_LABEL,)
        ),
    )
