"""Metrics of running pods and containers (upstream sets them at each relist; here they are read at a scrape)."""

from collections import Counter
from typing import Final

from klet.metrics import Label, MetricRegistry, Reading
from klet.model.runtime import RuntimeContainerState
from klet.pleg.cache import RuntimeCache

STATE: Final = Label("container_state", frozenset(state.value for state in RuntimeContainerState))


def register_running(registry: MetricRegistry, cache: RuntimeCache) -> None:
    def pods() -> Reading:
        return {(): sum(any(each.ready for each in pod.sandboxes) for pod in cache.pods().values())}

    def containers() -> Reading:
        states = Counter(record.state.value for pod in cache.pods().values() for record in pod.containers)
        return {(state,): count for state, count in states.items()}

    registry.computed("kubelet_running_pods", "Pods that have a sandbox which is ready.", pods)
    registry.computed("kubelet_running_containers", "Containers of the runtime by their state.", containers, (STATE,))
