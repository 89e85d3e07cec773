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
from klet.model.pods import PodUID, uid_of
from klet.model.verbosity import CHANGES
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.status.manager import (
    COMING_GAP,
    COMING_PATIENCE,
    COMING_PAUSE,
    SWEEP,
    PodApiError,
    StatusManager,
)
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


class SomeStarts:
    """Whether pods start is for the test to say."""

    def __init__(self):
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def is_busy(self):
        return not self.idle.is_set()

    async def until_idle(self):
        await self.idle.wait()


class Node:
    """Pods on the board, and what is reported to the API server."""

    def __init__(self, api=None):
        self.clock = ManualClock()
        self.pods, self.api = PodStore(), api or PatchedPods()
        self.board = StatusBoard(clock=self.clock)
        self.starts = SomeStarts()

    @asynccontextmanager
    async def publishing(self):
        publisher = StatusManager(
            board=self.board,
            pods=self.pods,
            api=self.api,
            starts=self.starts,
            may_run=lambda _uid: False,
            clock=self.clock,
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


async def test_many_pods_are_reported_as_running():
    node = Node()
    node.starts.idle.clear()
    async with node.publishing():
        await node.report("Pending")
        await node.clock.run(COMING_PATIENCE / 2)
        await node.report("Running")
        await node.clock.run(2 * COMING_PATIENCE)
        assert node.api.reported == [(f"p-{number}", "Running") for number in range(MANY)]


@pytest.mark.parametrize(
    ("busy_for", "reported_after"),
    [
        pytest.param(COMING_PATIENCE / 2, COMING_PATIENCE / 2, id="as soon as none starts"),
        pytest.param(COMING_PATIENCE * 2, COMING_PATIENCE + COMING_PAUSE, id="in the end all the same"),
    ],
)
async def test_pods_that_take_long_are_reported_as_starting(busy_for, reported_after):
    node = Node()
    node.starts.idle.clear()
    moment = timedelta(milliseconds=1)
    async with node.publishing():
        await node.report("Pending")
        await node.clock.run(reported_after - moment)
        assert node.api.reported == []
        if busy_for == reported_after:
            node.starts.idle.set()
        await node.clock.run(moment)
        if busy_for > reported_after:
            assert node.api.reported == [("p-0", "Pending")], "of one after the other"
            await node.clock.run(MANY * COMING_GAP)
        assert {name for name, _ in node.api.reported} == {f"p-{number}" for number in range(MANY)}


async def test_a_pod_that_ends_before_it_was_ready_is_reported_at_once():
    node, pod = a_deleted_pod()
    node.starts.idle.clear()
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
    node.starts.idle.clear()
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
