"""What is told at once, and what may wait."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from klet.api.pod import PodStatus
from klet.model.pods import uid_of
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.status.publisher import COMING_AT_ONCE, COMING_PATIENCE, StatusPublisher
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

MANY = 3 * COMING_AT_ONCE
NO_TIME = timedelta(0)


class PatchedPods:
    """Takes every patch; the watch shows nothing, so every pod is as it was made."""

    def __init__(self):
        self.told = []

    def seen(self, _pod):
        return None

    async def read(self, pod):
        return pod

    async def patch_status(self, pod, patch):
        self.told.append((pod.metadata.name, patch["status"]["phase"]))
        return pod

    async def delete(self, pod):
        raise AssertionError(f"nobody deletes {pod.metadata.name}")


class Node:
    """Pods of which the board tells, and what the API server is told."""

    def __init__(self):
        self.clock = ManualClock()
        self.pods, self.api = PodStore(), PatchedPods()
        self.board = StatusBoard(clock=self.clock)

    @asynccontextmanager
    async def publishing(self):
        publisher = StatusPublisher(
            board=self.board, pods=self.pods, api=self.api, may_run=lambda _uid: False, clock=self.clock
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(publisher.run())
            await self.clock.run(NO_TIME)
            yield
            task.cancel()

    async def report(self, phase, count=MANY):
        for number in range(count):
            pod = make_pod("main", name=f"p-{number}", uid=f"u-{number}")
            self.pods.put(pod)
            self.board.put(uid_of(pod), PodStatus(phase=phase))
            await self.clock.run(NO_TIME)


async def test_a_few_pods_are_told_to_be_on_their_way():
    node = Node()
    async with node.publishing():
        await node.report("Pending", COMING_AT_ONCE)
        assert len(node.api.told) == COMING_AT_ONCE


async def test_of_many_pods_it_is_told_that_they_run():
    node = Node()
    async with node.publishing():
        await node.report("Pending")
        assert node.api.told == [(f"p-{number}", "Pending") for number in range(COMING_AT_ONCE)]
        node.api.told.clear()
        await node.report("Running")
        await node.clock.run(2 * COMING_PATIENCE)
        assert node.api.told == [(f"p-{number}", "Running") for number in range(MANY)]


async def test_of_those_that_take_long_it_is_told_that_they_are_on_their_way():
    node = Node()
    async with node.publishing():
        await node.report("Pending")
        await node.clock.run(COMING_PATIENCE)
        assert {name for name, _ in node.api.told} == {f"p-{number}" for number in range(MANY)}
