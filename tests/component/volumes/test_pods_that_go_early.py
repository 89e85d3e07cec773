"""Pods that go while a step for their volumes is under way: nothing is taken from under it, and nothing stays."""

import asyncio
from datetime import timedelta

import pytest

from klet.volumes.errors import UncertainProgress
from klet.volumes.plugins.base import Expansion, ExpansionOutcome

A = "kubernetes.io/gce-pd/a"


@pytest.mark.parametrize("method", ["wait_for_attach", "mount_device", "set_up"])
@pytest.mark.parametrize("error", [None, UncertainProgress("no")], ids=["that works", "that fails"])
async def test_a_device_stays_while_a_step_is_under_way(running, pod_on, disk_volume, method, error):
    """Otherwise a controller could detach it in the middle of that."""
    gate = running.disks.gates[method] = asyncio.Event()
    await running.wait(pod_on(disk_volume()))
    await running.go_on(A)
    assert running.disks.calls[-1][0] == method
    ending = await running.end("u")
    assert running.volumes.volumes_in_use() == (A,)
    if error is not None:
        running.disks.faults[method] = error
    gate.set()
    await running.settle(timedelta(minutes=1))
    assert ending.done()
    assert ending.exception() is None
    assert running.volumes.volumes_in_use() == ()
    assert (running.rack.mounted, running.rack.staged) == (set(), {})
    assert not running.tasks[0].done()  # the agent


async def test_a_volume_that_is_found_attached_too_late_is_given_back(running, pod_on, disk_volume):
    await running.wait(pod_on(disk_volume()))
    gate = running.cluster.gate = asyncio.Event()
    await running.go_on(A)
    assert running.cluster.reads == ["node"]
    ending = await running.end("u")
    gate.set()
    await running.settle()
    assert ending.done()
    assert running.volumes.volumes_in_use() == ()
    assert running.disks.calls == []


async def test_a_pod_does_not_end_before_the_steps_for_its_volumes(running, pod_on, disk_volume):
    """Its directory would be removed, and what the step then mounts would belong to nobody."""
    gate = running.disks.gates["mount_device"] = asyncio.Event()
    await running.wait(pod_on(disk_volume()))
    await running.go_on(A)
    ending = await running.end("u")
    await running.settle(timedelta(minutes=5))
    [error] = await asyncio.gather(ending, return_exceptions=True)
    assert "volumes are still being mounted or unmounted" in str(error)
    gate.set()
    await running.settle()
    assert (await running.end("u")).exception() is None
    assert running.rack.is_empty()


async def test_nothing_is_kept_of_pods_that_have_gone(running, pod_on, disk_volume):
    """A node lives long, and has many pods whose volumes fail."""
    reconciler = running.volumes._reconciler
    for number in range(3):
        running.disks.faults["set_up"] = UncertainProgress("no") if number else UncertainProgress("not")
        running.disks.faults["tear_down"] = running.disks.faults["unmount_device"] = UncertainProgress("no")
        await running.wait(pod_on(disk_volume("local-1"), disk_volume("b", volume="w"), uid=f"u{number}"))
        await running.settle(timedelta(seconds=2))
        await running.end(f"u{number}")
        running.disks.faults.clear()
        await running.settle(timedelta(minutes=5))
    assert running.rack.is_empty()
    kept = (reconciler._backoff._failures, reconciler._wanted_since, reconciler._busy)
    assert kept == ({}, {}, {})


async def test_a_pod_keeps_its_volume_when_its_claim_leads_to_another(running, pod_on):
    """Both would be mounted in the same directory, one over the other."""
    running.disks.grows = Expansion(ExpansionOutcome.FINISHED)
    running.cluster.add_claim("c", disk="local-1")
    pod = pod_on(claims=["c"])
    await running.wait(pod)
    assert running.disks.ups == [("u", "pv-local-1")]
    running.cluster.volumes["pv-local-1"]["spec"]["gcePersistentDisk"] = {"pdName": "local-2"}
    await running.settle(timedelta(minutes=10))
    running.volumes.process(pod)
    await running.settle()
    running.volumes.process(pod)
    await running.settle(timedelta(minutes=1))
    assert running.disks.ups == [("u", "pv-local-1")]
    assert running.rack.staged == {"local-1": False}
    assert (await running.wait(pod)).exception() is None
    await running.end("u")
    assert running.rack.is_empty()
