"""Metrics of cgroups: how long changes of them take, and which version the node has."""

from klet.metrics import DEFAULT_BOUNDS, Histogram, Label, MetricRegistry

_OPERATIONS = Label("operation_type", frozenset({"create", "update", "destroy"}))


def register_cgroups(registry: MetricRegistry) -> Histogram:
    return registry.histogram(
        "kubelet_cgroup_manager_duration_seconds",
        "How long the agent took to make, change or remove a cgroup.",
        DEFAULT_BOUNDS,
        (_OPERATIONS,),
    )


def register_cgroup_version(registry: MetricRegistry, version: int) -> None:
    registry.gauge("kubelet_cgroup_version", "The version of cgroups that the machine has: 1 or 2.").set(version)
