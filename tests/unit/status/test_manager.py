"""What is reported at once, and what may wait."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import DEFAULT_LIMIT
from klet.api.codec import convert
from klet.api.pod import PodStatus
from klet.kube.watch import WATCH_LAG
from klet.metrics import MetricRegistry
from klet.model.pods import PodUID, uid_of
from klet.model.verbosity import CHANGES
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.status.manager import (
    COMING_GAP,
    COMING_PAUSE,
    SWEEP,
    PodApiError,
    StatusManager,
)
from klet.status.metrics import register_statuses
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

MANY = 30
NO_TIME = timedelta(0)


class PatchedPods:
    """Takes every patch; the watch shows nothing, so every pod is as it was made."""

    def __init__(self):
        self.reported = []

    def seen(self, _pod):
        return None

    async def read(self, pod):
        return pod

    async def patch_status(self, pod, patch):
        self.reported.append((pod.metadata.name, patch["status"]["phase"]))
        return pod

    async def delete(self, pod):
        raise AssertionError(f"nobody deletes {pod.metadata.name}")


class SomeRefused(PatchedPods):
    """Takes every patch but those of the first pod."""

    async def patch_status(self, pod, patch):
        if pod.metadata.name == "p-0":
            raise PodApiError("no answer")
        return await super().patch_status(pod, patch)


class WatchedPods:
    """A server whose watch shows what the test says; every request is noted."""

    def __init__(self, pod):
        self.shown = pod
        self.asked = []

    def seen(self, _pod):
        return self.shown

    async def read(self, pod):
        self.asked.append("GET")
        raise PodApiError(f"a node may not read {pod.metadata.name}")

    async def patch_status(self, pod, patch):
        self.asked.append("PATCH")
        version = str(int(pod.metadata.resource_version) + 1)
        metadata = replace(pod.metadata, resource_version=version)
        self.answer = replace(pod, metadata=metadata, status=convert(PodStatus, patch["status"]))
        return self.answer

    async def delete(self, _pod):
        self.asked.append("DELETE")


class Node:
    """Pods on the board, and what is reported to the API server."""

    def __init__(self, api=None):
        self.clock = ManualClock()
        self.pods, self.api = PodStore(), api or PatchedPods()
        self.board = StatusBoard(clock=self.clock)
        self.registry = MetricRegistry()

    def build(self):
        return StatusManager(
            delays=register_statuses(self.registry),
            board=self.board,
            pods=self.pods,
            api=self.api,
            may_run=lambda _uid: False,
            clock=self.clock,
        )

    @asynccontextmanager
    async def publishing(self):
        publisher = self.build()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(publisher.run())
            await self.clock.run(NO_TIME)
            yield publisher
            task.cancel()

    async def report(self, phase, count=MANY):
        for number in range(count):
            self.add(number, phase)
            await self.clock.run(NO_TIME)

    def add(self, number, phase):
        pod = make_pod("main", name=f"p-{number}", uid=f"u-{number}")
        self.pods.put(pod)
        self.board.put(uid_of(pod), PodStatus(phase=phase))


async def test_a_pod_that_takes_long_is_reported_as_starting():
    node = Node()
    async with node.publishing():
        await node.report("Pending", 1)
        assert node.api.reported == []
        await node.clock.run(COMING_PAUSE)
        assert node.api.reported == [("p-0", "Pending")]


async def test_only_the_newest_status_of_a_pod_that_starts_soon_is_reported():
    node = Node()
    async with node.publishing():
        await node.report("Pending", 1)
        await node.clock.run(COMING_PAUSE / 2)
        await node.report("Running", 1)
        await node.clock.run(2 * COMING_PAUSE)
        assert node.api.reported == [("p-0", "Running")]


async def test_of_a_crowd_those_that_run_by_then_are_not_reported_as_starting():
    node = Node()
    async with node.publishing():
        await node.report("Pending")
        await node.clock.run(COMING_PAUSE + 5 * COMING_GAP)
        started = len(node.api.reported)
        await node.report("Running")
        await node.clock.run(10 * COMING_PAUSE)
        assert 5 <= started <= 7
        assert node.api.reported[started:] == [(f"p-{number}", "Running") for number in range(MANY)]


@pytest.mark.parametrize(
    ("count", "within"),
    [
        pytest.param(1, timedelta(seconds=0.3), id="one pod"),
        pytest.param(10, timedelta(seconds=0.6), id="ten pods, each within a second"),
        pytest.param(100, timedelta(seconds=3.5), id="a crowd, each within five seconds"),
        pytest.param(500, timedelta(seconds=4), id="a crowd that is larger than a node"),
    ],
)
async def test_pods_that_take_long_are_reported_as_starting_soon(count, within):
    node = Node()
    async with node.publishing():
        await node.report("Pending", count)
        await node.clock.run(within)
        assert [name for name, _ in node.api.reported] == [f"p-{number}" for number in range(count)]


async def test_pods_that_keep_coming_are_reported_as_starting_soon_too():
    node = Node()
    async with node.publishing():
        for number in range(40):
            node.add(number, "Pending")
            await node.clock.run(COMING_PAUSE / 2)
        await node.clock.run(COMING_PAUSE)
        assert len(node.api.reported) == 40


async def test_what_waits_when_the_agent_stops_is_written():
    node = Node()
    async with node.publishing() as publisher:
        await node.report("Running", 2)
        await node.report("Pending", 12)
        assert publisher.waiting == 12
    node.api.reported.clear()
    await publisher.drain()
    assert sorted(node.api.reported) == sorted((f"p-{number}", "Pending") for number in range(12))
    assert publisher.waiting == 0


async def test_a_status_that_cannot_be_written_at_the_end_keeps_no_other_from_it():
    node = Node(SomeRefused())
    publisher = node.build()
    await node.report("Running", 20)
    await publisher.drain()
    assert sorted(node.api.reported) == sorted((f"p-{number}", "Running") for number in range(1, 20))
    assert publisher.waiting == 1


async def test_a_pod_that_ends_before_it_was_ready_is_reported_at_once():
    node, pod = a_deleted_pod()
    async with node.publishing():
        node.pods.put(pod)
        node.board.put(uid_of(pod), PodStatus(phase="Pending"), is_finished=True)
        await node.clock.run(NO_TIME)
        assert node.api.asked == ["PATCH"]


async def test_a_pod_that_has_to_restart_is_reported_at_once():
    """Its sandbox was lost: until that is reported it counts as ready, and is sent requests."""
    pod = make_pod("main", uid="u-1")
    metadata = replace(pod.metadata, resource_version="5")
    pod = replace(pod, metadata=metadata, status=PodStatus(phase="Running"))
    node = Node(WatchedPods(pod))
    async with node.publishing():
        node.pods.put(pod)
        node.board.put(uid_of(pod), PodStatus(phase="Pending"))
        await node.clock.run(NO_TIME)
        assert node.api.asked == ["PATCH"]


def a_deleted_pod():
    """A node that has let its pod go at the API server."""
    pod = make_pod("main", uid="u-1", deleted=True)
    pod = replace(pod, metadata=replace(pod.metadata, resource_version="5"))
    node = Node(WatchedPods(pod))
    return node, pod


async def test_nothing_more_is_asked_of_a_pod_that_was_let_go():
    node, pod = a_deleted_pod()
    async with node.publishing():
        node.pods.put(pod)
        node.board.put(uid_of(pod), PodStatus(phase="Succeeded"), is_finished=True)
        await node.clock.run(NO_TIME)
        assert node.api.asked == ["PATCH", "DELETE"]
        # Before the watch shows it, and after.
        for shown in (pod, None):
            node.api.shown = shown
            node.pods.put(pod)
            node.board.put(uid_of(pod), PodStatus(phase="Failed", reason=str(shown is None)), is_finished=True)
            await node.clock.run(2 * SWEEP)
        assert node.api.asked == ["PATCH", "DELETE"]


async def test_a_pod_that_a_finalizer_keeps_is_reported_again():
    node, pod = a_deleted_pod()
    async with node.publishing():
        node.pods.put(pod)
        node.board.put(uid_of(pod), PodStatus(phase="Succeeded"), is_finished=True)
        await node.clock.run(NO_TIME)
        node.api.asked.clear()
        node.api.shown = replace(pod, metadata=replace(pod.metadata, resource_version="7"))
        await node.clock.run(2 * SWEEP)
        assert node.api.asked == ["PATCH", "DELETE"]


async def test_a_status_that_was_put_back_to_an_older_one_is_written_again():
    """As from a backup of the API server: its versions are lower than those that we know."""
    pod = make_pod("main", uid="u-1")
    pod = replace(pod, metadata=replace(pod.metadata, resource_version="5"))
    node = Node(WatchedPods(pod))
    async with node.publishing():
        node.pods.put(pod)
        node.board.put(uid_of(pod), PodStatus(phase="Running"))
        await node.clock.run(NO_TIME)
        node.api.shown = replace(pod, metadata=replace(pod.metadata, resource_version="3"))
        await node.clock.run(3 * SWEEP)
        assert node.api.asked == ["PATCH"], "a watch may be late"
        await node.clock.run(3 * SWEEP)
        assert node.api.asked == ["PATCH", "PATCH"]
        node.api.shown = node.api.answer
        await node.clock.run(2 * WATCH_LAG)
        assert node.api.asked == ["PATCH", "PATCH"]


async def test_after_dropped_changes_every_status_is_looked_at():
    node = Node()
    pod = make_pod("main", name="p-0", uid="u-0")
    node.pods.put(pod)
    async with node.publishing():
        node.board.put(uid_of(pod), PodStatus(phase="Running"))
        for number in range(DEFAULT_LIMIT):
            node.board.put(PodUID(f"other-{number}"), PodStatus(phase="Running"))
        await node.clock.run(NO_TIME)
        assert node.api.reported == [("p-0", "Running")]


async def test_a_status_that_was_written_is_logged_from_verbosity_3_on(caplog):
    node = Node()
    caplog.set_level(CHANGES, logger="klet.status.manager")
    async with node.publishing():
        await node.report("Running", 1)
    [line] = [each for each in caplog.records if each.message == "Status for pod updated successfully"]
    assert (line.levelno, line.pod) == (CHANGES, "p-0_default(u-0)")


async def test_the_time_from_the_first_change_to_the_write_is_measured():
    node = Node()
    async with node.publishing() as publisher:
        await node.report("Pending", 1)
        assert publisher.queue_length == 1
        await node.clock.run(timedelta(milliseconds=250))
        await node.report("Running", 1)
        assert publisher.queue_length == 0
    lines = node.registry.write().decode().splitlines()
    assert "kubelet_pod_status_sync_duration_seconds_sum 0.25" in lines
    assert "kubelet_pod_status_sync_duration_seconds_count 1" in lines
