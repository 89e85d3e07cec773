"""What several managers say of a container is put together."""

import asyncio

from klet.model.allocation import Pins
from klet.resources.pinning import PinnedContainers
from klet.testing.builders import make_pod


class Manager:
    """Has given one container something."""

    def __init__(self, pins):
        self.pins, self.started = pins, []

    def pins_of(self, uid, container):
        return self.pins if (uid, container) == ("uid-1", "main") else Pins()

    async def before_start(self, pod, container, container_id, cpus):
        self.started.append((pod.metadata.uid, container, container_id, cpus))


def test_pins_are_put_together():
    managers = [Manager(Pins(cpus=frozenset({2, 8}))), Manager(Pins(memory_nodes=frozenset({0, 1})))]
    pinned = PinnedContainers(managers=managers)
    assert pinned.pins_of("uid-1", "main") == Pins(cpus=frozenset({2, 8}), memory_nodes=frozenset({0, 1}))
    assert pinned.pins_of("uid-1", "other") == Pins()
    asyncio.run(pinned.before_start(make_pod(), "main", "id", frozenset({2})))
    assert [manager.started for manager in managers] == [[("uid-1", "main", "id", frozenset({2}))]] * 2
