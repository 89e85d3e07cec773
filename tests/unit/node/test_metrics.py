import asyncio
from datetime import timedelta

import pytest

from klet.api.codec import convert
from klet.api.node import Node
from klet.metrics import MetricRegistry
from klet.node.board import NodeBoard
from klet.node.first_contact import RuntimeIntroduction
from klet.node.metrics import StartupTimes, is_ready, register_contact
from klet.testing.clock import ManualClock

READY = convert(Node, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
NOT_READY = convert(Node, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
SECOND = timedelta(seconds=1)


def read(registry):
    lines = (line.rpartition(" ") for line in registry.write().decode().splitlines() if not line.startswith("#"))
    return {name.removeprefix("kubelet_node_startup_"): float(value) for name, _, value in lines}


@pytest.mark.parametrize(
    ("is_new", "expected"),
    [
        pytest.param(True, (60, 2, 1, 4, 67), id="a new node"),
        pytest.param(False, (0, 0, 0, 0, 0), id="one that is adopted"),
    ],
)
async def test_the_steps_to_a_node_that_is_ready(is_new, expected):
    registry, clock, board = MetricRegistry(), ManualClock(), NodeBoard()
    booted = clock.now()
    clock.advance(60 * SECOND)
    times = StartupTimes(registry=registry, board=board, booted_at=lambda: booted, started_at=clock.now(), clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(times.run())
        clock.advance(2 * SECOND)
        times.note_try()
        clock.advance(SECOND)
        times.note_try()
        if is_new:
            times.note_new()
        board.put(NOT_READY)
        await clock.run(4 * SECOND)
        board.put(READY)
        await clock.run(timedelta())
        task.cancel()
    names = ("pre_kubelet_", "pre_registration_", "registration_", "post_registration_", "")
    found = read(registry)
    assert tuple(found[f"{name}duration_seconds"] for name in names) == expected


def test_a_node_that_is_not_known_is_not_ready():
    assert not is_ready(None)
    assert not is_ready(NOT_READY)
    assert is_ready(READY)


class Contact:
    def __init__(self, found):
        self.found = found


@pytest.mark.parametrize(
    ("found", "is_shown"),
    [
        pytest.param(None, False, id="the runtime has not answered yet"),
        pytest.param(RuntimeIntroduction("containerd", "2.1", "systemd"), False, id="it reports its cgroup driver"),
        pytest.param(RuntimeIntroduction("containerd", "1.6", "cgroupfs", True), True, id="it does not"),
    ],
)
def test_a_runtime_that_is_too_old_is_shown(found, is_shown):
    registry = MetricRegistry()
    register_contact(registry, Contact(found))
    assert ('kubelet_cri_losing_support{version="1.36.0"} 1' in registry.write().decode()) is is_shown
