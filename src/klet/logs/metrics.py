"""Metrics of the queue of logs to rotate, by the names of client-go's queues."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klet.aio.clock import Clock
from klet.metrics import FewValues, MetricRegistry, Reading
from klet.model.runtime import ContainerId

QUEUE: Final = "kubelet_log_rotate_manager"
_NAME: Final = FewValues("name", 1)
_BOUNDS: Final = tuple(float(f"1e{power}") for power in range(-8, 2))


class LogQueueMetrics:
    """Measures how long logs wait for a worker, and how long it works on them."""

    def __init__(self, *, registry: MetricRegistry, depth: Callable[[], int], clock: Clock) -> None:
        self._clock = clock
        self._added: dict[ContainerId, float] = {}
        self._begun: dict[ContainerId, float] = {}
        self._adds = registry.counter("workqueue_adds_total", "Logs that were handed to the workers.", (_NAME,))
        self._retries = registry.counter("workqueue_retries_total", "Logs that were handed over again.", (_NAME,))
        self._waits = registry.histogram(
            "workqueue_queue_duration_seconds", "How long a log waited for a worker.", _BOUNDS, (_NAME,)
        )
        self._works = registry.histogram(
            "workqueue_work_duration_seconds", "How long a worker took for a log.", _BOUNDS, (_NAME,)
        )
        for counter in (self._adds, self._retries):
            counter.add(QUEUE, by=0)
        for histogram in (self._waits, self._works):
            histogram.begin(QUEUE)
        registry.computed("workqueue_depth", "Logs that wait for a worker.", lambda: _of(depth()), (_NAME,))
        registry.computed(
            "workqueue_unfinished_work_seconds",
            "How long the workers have been at their present logs, together.",
            lambda: _of(sum(self._ages())),
            (_NAME,),
        )
        registry.computed(
            "workqueue_longest_running_processor_seconds",
            "How long the slowest worker has been at its present log.",
            lambda: _of(max(self._ages(), default=0)),
            (_NAME,),
        )

    def note_added(self, id_: ContainerId) -> None:
        if id_ not in self._added:
            self._added[id_] = self._clock.monotonic()
            self._adds.add(QUEUE)

    @contextmanager
    def working(self, id_: ContainerId) -> Iterator[None]:
        """Measure the work on one log."""
        began = self._begun[id_] = self._clock.monotonic()
        if (added := self._added.pop(id_, None)) is not None:
            self._waits.observe(began - added, QUEUE)
        try:
            yield
        finally:
            del self._begun[id_]
            self._works.observe(self._clock.monotonic() - began, QUEUE)

    def _ages(self) -> list[float]:
        now = self._clock.monotonic()
        return [now - began for began in self._begun.values()]


def _of(value: float) -> Reading:
    return {(QUEUE,): value}
