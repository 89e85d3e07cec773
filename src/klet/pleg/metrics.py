"""Metrics of the PLEG, and of running pods and containers (upstream sets the latter at each relist)."""

from collections import Counter as Tally
from typing import Final

from msgspec import Struct

from klet.metrics import DEFAULT_BOUNDS, Counter, Gauge, Histogram, Label, MetricRegistry, Reading
from klet.model.runtime import RuntimeContainerState
from klet.pleg.cache import RuntimeCache

STATE: Final = Label("container_state", frozenset(state.value for state in RuntimeContainerState))
_LAG_BOUNDS: Final = (0.001, 0.0025, *DEFAULT_BOUNDS)


class PlegMetrics(Struct, frozen=True, kw_only=True):
    """Relists, the event stream, and how long an event takes until its pod has been read."""

    relist_duration: Histogram
    relist_interval: Histogram
    last_seen: Gauge
    streams_opened: Counter
    streams_failed: Counter
    stream_latency: Histogram
    event_lag: Histogram


def register_pleg(registry: MetricRegistry) -> PlegMetrics:
    registry.counter("kubelet_pleg_discard_events", "Events that were dropped; klet drops none.")
    return PlegMetrics(
        relist_duration=registry.histogram(
            "kubelet_pleg_relist_duration_seconds", "How long a relist of all pods took.", DEFAULT_BOUNDS
        ),
        relist_interval=registry.histogram(
            "kubelet_pleg_relist_interval_seconds", "The time between two relists.", DEFAULT_BOUNDS
        ),
        last_seen=registry.gauge(
            "kubelet_pleg_last_seen_seconds", "When the latest relist began, in seconds since the epoch."
        ),
        streams_opened=registry.counter(
            "kubelet_evented_pleg_connection_success_count", "Event streams of the runtime that were opened."
        ),
        streams_failed=registry.counter(
            "kubelet_evented_pleg_connection_error_count", "Event streams of the runtime that broke."
        ),
        stream_latency=registry.histogram(
            "kubelet_evented_pleg_connection_latency_seconds",
            "From an event of the runtime to its arrival at the agent.",
            DEFAULT_BOUNDS,
        ),
        event_lag=registry.histogram(
            "klet_runtime_event_lag_seconds",
            "From an event of the runtime to the end of the read of its pod.",
            _LAG_BOUNDS,
        ),
    )


def register_running(registry: MetricRegistry, cache: RuntimeCache) -> None:
    def pods() -> Reading:
        return {(): sum(any(each.ready for each in pod.sandboxes) for pod in cache.pods().values())}

    def containers() -> Reading:
        states = Tally(record.state.value for pod in cache.pods().values() for record in pod.containers)
        return {(state,): count for state, count in states.items()}

    registry.computed("kubelet_running_pods", "Pods that have a sandbox which is ready.", pods)
    registry.computed("kubelet_running_containers", "Containers of the runtime by their state.", containers, (STATE,))
