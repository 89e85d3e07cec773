"""Volumes that a controller attaches: none is set up before the node's status has named it."""

import asyncio
import random
from datetime import timedelta

import pytest

from klet.allocation.book import AllocationBook
from klet.errors import KletError
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.objectcache.claims import StandaloneClaims
from klet.testing.attachable import AttachableDisks
from klet.volumes.attaching import find_attached
from klet.volumes.build import ManagerPorts, build_manager
from klet.volumes.directories import PodDirectories
from klet.volumes.names import Layout

EMPTY = {"name": "e", "emptyDir": {}}
A = "kubernetes.io/gce-pd/a"
B = "kubernetes.io/gce-pd/b"


def disk(name, volume="v"):
    return {"name": volume, "gcePersistentDisk": {"pdName": name}}


class Node:
    """A manager with disks to attach, and nobody who reports on it."""

    def __init__(self, machine):
        self.clock = machine.clock
        self.root = machine.root
        self.disks = AttachableDisks()
        self.volumes = build_manager(
            ManagerPorts(
                registry=MetricRegistry(),
                plugins=(self.disks, machine.plugins["kubernetes.io/empty-dir"]),
                allocations=AllocationBook(),
                disk=PodDirectories(layout=Layout(machine.root), threads=machine.threads),
                recorder=MemoryJournal(clock=machine.clock),
                refresh=timedelta(minutes=1),
                randomness=random.Random(1),
                clock=machine.clock,
                claims=StandaloneClaims(),
                find_node=lambda: None,
            )
        )
        self.tasks = []

    def leave(self, uid, name, plugin="kubernetes.io~gce-pd"):
        """What a previous run of the agent has left of a volume."""
        (self.root / "pods" / uid / "volumes" / plugin / name).mkdir(parents=True)

    async def settle(self):
        await self.clock.run(timedelta())

    async def start(self):
        self.tasks.append(self.group.create_task(self.volumes.run()))
        await self.settle()

    async def wait(self, pod):
        """Somebody who waits for the volumes of a pod."""
        waiter = self.group.create_task(self.volumes.wait_for_attach_and_mount(pod))
        await self.settle()
        return waiter

    async def end(self, uid):
        ending = self.group.create_task(self.volumes.wait_for_unmount(uid))
        await self.settle()
        assert ending.done()


@pytest.fixture
async def node(machine):
    made = Node(machine)
    async with asyncio.TaskGroup() as made.group:
        yield made
        for task in made.tasks:
            task.cancel()


@pytest.fixture
async def started(node):
    await node.start()
    return node


async def test_it_waits_until_its_use_is_reported(started, pod_with):
    waiter = await started.wait(pod_with(disk("a"), EMPTY))
    assert started.volumes.volumes_in_use() == (A,)
    assert started.disks.ups == []
    started.volumes.mark_reported_in_use([B])
    await started.settle()
    assert (started.disks.ups, waiter.done()) == ([], False)
    started.volumes.mark_reported_in_use([A, B])
    await started.settle()
    assert (started.disks.ups, waiter.done()) == ([("u", "v")], True)


async def test_the_wait_names_what_is_not_attached(started, pod_with):
    waiter = asyncio.gather(started.volumes.wait_for_attach_and_mount(pod_with(disk("a"))), return_exceptions=True)
    await started.clock.run(timedelta(minutes=2, seconds=3))
    [error] = await waiter
    assert str(error) == (
        "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
    )


async def test_volumes_in_use_are_named_once_and_in_order(started, pod_with):
    for uid, name in (("u2", "b"), ("u1", "b"), ("u3", "a")):
        started.volumes.process(pod_with(disk(name), EMPTY, uid=uid))
    assert started.volumes.volumes_in_use() == (A, B)


async def test_a_volume_that_needs_no_attaching_does_not_wait(started, pod_with):
    waiter = await started.wait(pod_with(disk("local-1")))
    assert waiter.done()
    assert started.volumes.volumes_in_use() == ()


async def test_what_a_pod_has_is_in_use_until_it_is_gone(started, pod_with):
    with started.volumes.in_use_changes() as changes:
        started.volumes.process(pod_with(disk("a")))
        started.volumes.mark_reported_in_use([A])
        await started.settle()
        assert changes.drain() == [A]
        await started.end("u")
        assert changes.drain() == [A, A]  # no longer wanted, and then no longer there
    assert started.disks.downs == [("u", "v")]
    assert started.volumes.volumes_in_use() == ()


async def test_other_kinds_are_no_news(started, pod_with):
    with started.volumes.in_use_changes() as changes:
        await started.wait(pod_with(EMPTY))
        await started.end("u")
        assert changes.drain() == []


async def test_a_second_pod_of_an_attached_volume_need_not_wait(started, pod_with):
    await started.wait(pod_with(disk("a"), uid="u1"))
    started.volumes.mark_reported_in_use([A])
    await started.settle()
    waiter = await started.wait(pod_with(disk("a"), uid="u2"))
    assert waiter.done()
    assert started.disks.ups == [("u1", "v"), ("u2", "v")]


async def test_a_volume_that_comes_back_is_reported_again(started, pod_with):
    waiter = await started.wait(pod_with(disk("a"), uid="u1"))
    started.volumes.mark_reported_in_use([A])
    await started.settle()
    assert waiter.done()
    await started.end("u1")
    again = await started.wait(pod_with(disk("a"), uid="u2"))
    assert not again.done()  # a status without it may be on its way
    started.volumes.mark_reported_in_use([A])
    await started.settle()
    assert again.done()


async def test_a_report_without_a_volume_takes_it_back(started, pod_with):
    started.volumes.mark_reported_in_use([A])  # nobody wants it yet
    waiter = await started.wait(pod_with(disk("a")))
    assert not waiter.done()
    started.volumes.mark_reported_in_use([])
    started.volumes.mark_reported_in_use([A])
    await started.settle()
    assert waiter.done()


async def test_what_is_in_use_is_unknown_until_an_earlier_life_was_looked_for(node, pod_with):
    node.leave("old", "a")
    node.volumes.process(pod_with(disk("b")))
    assert node.volumes.volumes_in_use() is None
    await node.start()
    assert node.volumes.volumes_in_use() == (A, B)


async def test_volumes_of_an_earlier_life_are_in_use_until_they_are_taken_down(node):
    node.leave("old", "a")
    node.leave("old", "local-1")
    node.leave("old", "e", plugin="kubernetes.io~empty-dir")
    await node.start()
    assert node.volumes.volumes_in_use() == (A,)
    await node.end("old")
    assert node.disks.downs == [("old", "a"), ("old", "local-1")]
    assert node.volumes.volumes_in_use() == ()


async def test_a_volume_of_an_earlier_life_is_set_up_again_at_once(node, pod_with):
    node.leave("u", "a")
    await node.start()
    waiter = await node.wait(pod_with(disk("a", volume="a")))
    assert waiter.done()
    assert node.disks.ups == [("u", "a")]


async def test_one_that_cannot_be_read_hides_no_other(node, caplog):
    node.leave("u1", "broken")
    node.leave("u2", "a")
    await node.start()
    assert node.volumes.volumes_in_use() == (A,)
    assert [record.error for record in caplog.records] == ["cannot read what disk broken is"]


class NoDisk:
    async def pods(self):
        raise KletError("cannot look for pods in /pods: Input/output error")

    async def find(self, uid):
        raise AssertionError(uid)


async def test_a_disk_that_cannot_be_read_is_reported(caplog):
    assert await find_attached({AttachableDisks.name: AttachableDisks()}, NoDisk()) == []
    assert [record.error for record in caplog.records] == ["cannot look for pods in /pods: Input/output error"]


async def test_a_node_without_such_volumes_does_not_look_for_them(machine):
    plugins = {"kubernetes.io/empty-dir": machine.plugins["kubernetes.io/empty-dir"]}
    assert await find_attached(plugins, NoDisk()) == []
