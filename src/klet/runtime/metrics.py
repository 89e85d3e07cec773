"""Metrics of calls to the runtime."""

from msgspec import Struct

from klet.metrics import Counter, MetricRegistry


class SandboxMetrics(Struct, frozen=True):
    """Pods that were given a sandbox, tries included, and the tries that failed."""

    started: Counter
    failed: Counter


def register_sandboxes(registry: MetricRegistry) -> SandboxMetrics:
    return SandboxMetrics(
        started=registry.counter("kubelet_started_pods_total", "Sandboxes that were to be created for pods."),
        failed=registry.counter("kubelet_started_pods_errors_total", "Sandboxes that could not be created."),
    )
