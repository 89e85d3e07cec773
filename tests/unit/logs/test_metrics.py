from datetime import timedelta

from klet.logs.metrics import QUEUE, LogQueueMetrics
from klet.metrics import MetricRegistry
from klet.testing.clock import ManualClock


def read(registry):
    lines = (line.rpartition(" ") for line in registry.write().decode().splitlines() if not line.startswith("#"))
    ending = f'{{name="{QUEUE}"}}'
    return {name.removesuffix(ending): float(value) for name, _, value in lines if name.endswith(ending)}


def test_every_family_is_there_before_there_is_work():
    registry = MetricRegistry()
    LogQueueMetrics(registry=registry, depth=lambda: 0, clock=ManualClock())
    assert read(registry) == dict.fromkeys(
        (
            *("workqueue_adds_total", "workqueue_depth", "workqueue_longest_running_processor_seconds"),
            *("workqueue_queue_duration_seconds_sum", "workqueue_queue_duration_seconds_count"),
            *("workqueue_retries_total", "workqueue_unfinished_work_seconds"),
            *("workqueue_work_duration_seconds_sum", "workqueue_work_duration_seconds_count"),
        ),
        0,
    )


def test_waiting_and_work_are_measured():
    registry, clock = MetricRegistry(), ManualClock()
    metrics = LogQueueMetrics(registry=registry, depth=lambda: 1, clock=clock)
    for id_ in ("a", "a", "b"):
        metrics.note_added(id_)
    clock.advance(timedelta(seconds=2))
    with metrics.working("a"):
        clock.advance(timedelta(seconds=3))
        with metrics.working("b"):
            clock.advance(timedelta(seconds=1))
            now = read(registry)
            assert now["workqueue_depth"] == 1
            assert now["workqueue_unfinished_work_seconds"] == 5
            assert now["workqueue_longest_running_processor_seconds"] == 4
    after = read(registry)
    assert after["workqueue_adds_total"] == 2
    assert after["workqueue_queue_duration_seconds_sum"] == 2 + 5
    assert after["workqueue_work_duration_seconds_sum"] == 4 + 1
    assert after["workqueue_unfinished_work_seconds"] == 0
