"""What a previous run of the agent left: found on disk, and set up again for pods that are wanted, or taken down.

A run that is killed leaves its work in any state. Here it is killed at every side effect that mounting and unmounting
have, one after the other.
"""

from datetime import timedelta

import pytest

from klet.errors import KletError

A = "kubernetes.io/gce-pd/a"
RETRY = timedelta(milliseconds=500)


async def housekeeping(node, *wanted):
    """End what belongs to no pod, as it is done once all sources have been read."""
    for uid in await node.rack.pods():
        if uid not in wanted:
            assert (await node.end(uid)).done()
    node.volumes.release_unused()
    await node.settle()


async def restart(node):
    await node.kill()
    await node.start()


async def test_what_is_in_use_is_unknown_until_the_node_was_seen(staged, pod_on, disk_volume):
    staged.rack.directories["old", "a"] = "a"
    staged.volumes.process(pod_on(disk_volume("b")))
    await staged.start()
    assert staged.volumes.volumes_in_use() is None
    staged.cluster.attach(A)
    await staged.settle()
    assert staged.volumes.volumes_in_use() == (A, "kubernetes.io/gce-pd/b")


async def test_volumes_of_a_previous_run_are_in_use_until_they_are_taken_down(staged):
    staged.rack.directories |= {("old", "a"): "a", ("old", "local-1"): "local-1"}
    staged.cluster.attach(A)
    await staged.start()
    assert staged.volumes.volumes_in_use() == (A,)
    await housekeeping(staged)
    assert staged.disks.downs == [("old", "a"), ("old", "local-1")]
    assert staged.volumes.volumes_in_use() == ()
    assert staged.rack.is_empty()


async def test_a_device_waits_for_the_node_and_for_all_pods(staged):
    """Nobody may detach what is still mounted, and its pod may only not have been read yet."""
    staged.rack.staged["a"] = False
    await staged.start()
    staged.volumes.release_unused()
    await staged.settle()
    assert staged.disks.calls == []
    staged.cluster.attach(A)
    await staged.settle()
    assert staged.disks.calls == [("unmount_device", "a", "/dev/by-status/a")]
    assert staged.rack.is_empty()


async def test_without_an_api_server_nothing_is_waited_for(staged):
    staged.has_api = False
    staged.begin()
    staged.rack.staged["local-1"] = False
    await staged.start()
    assert staged.volumes.volumes_in_use() == ()
    staged.volumes.release_unused()
    await staged.settle()
    assert staged.rack.is_empty()


async def test_a_volume_of_a_previous_run_is_set_up_again_at_once(staged, pod_on, disk_volume):
    staged.rack.directories["u", "v"] = "a"
    staged.cluster.attach(A)
    await staged.start()
    waiter = await staged.wait(pod_on(disk_volume()))
    assert waiter.done()
    assert staged.disks.ups == [("u", "v")]


async def test_one_that_was_not_set_up_again_is_taken_down_all_the_same(staged, pod_on, disk_volume):
    staged.rack.directories["u", "v"] = "a"
    staged.cluster.attach(A)
    await staged.start()
    staged.disks.faults["set_up"] = KletError("no")
    await staged.wait(pod_on(disk_volume()))
    await staged.end("u")
    assert staged.disks.downs == [("u", "v")]
    await housekeeping(staged)
    assert staged.rack.is_empty()


async def test_one_that_cannot_be_read_hides_no_other(staged, caplog):
    staged.rack.directories |= {("u1", "broken"): "broken", ("u2", "a"): "a"}
    staged.cluster.attach(A)
    await staged.start()
    assert staged.volumes.volumes_in_use() == (A,)
    assert [record.error for record in caplog.records] == ["cannot read what disk broken is"]


async def test_one_that_cannot_be_read_is_torn_down_once(staged, caplog):
    staged.rack.directories["old", "broken"] = "broken"
    staged.cluster.attach()
    await staged.start()
    staged.disks.faults["tear_down"] = KletError("busy")
    ending = await staged.end("old")
    assert ending.done()
    assert staged.disks.downs == [("old", "broken")]
    await staged.settle(timedelta(minutes=5))
    assert (await staged.end("old")).done()  # housekeeping asks again every two seconds
    assert staged.disks.downs == [("old", "broken")]
    [finding] = staged.notes.findings
    assert finding.next_at is None
    assert "cannot read what disk broken is" in {record.error for record in caplog.records}


@pytest.mark.parametrize(
    ("fault", "errors"),
    [
        pytest.param(None, "0", id="that is taken down"),
        pytest.param(KletError("busy"), "1", id="that cannot be taken down"),
    ],
)
async def test_what_is_left_is_counted(staged, fault, errors):
    staged.rack.directories |= {("old", "broken"): "broken", ("old", "a"): "a"}
    staged.cluster.attach()
    await staged.start()
    counted = {"reconstruct_volume_operations_total": "2", "reconstruct_volume_operations_errors_total": "1"}
    assert staged.metrics("reconstruct_") == counted
    assert set(staged.metrics("force_cleaned_").values()) == {"0"}
    if fault is not None:
        staged.disks.faults["tear_down"] = fault
    await staged.end("old")
    assert staged.metrics("force_cleaned_") == {
        "force_cleaned_failed_volume_operations_total": "1",
        "force_cleaned_failed_volume_operation_errors_total": errors,
    }


async def test_a_bug_in_reading_what_is_left_does_not_end_the_agent(staged, caplog):
    async def fail(_):
        raise ZeroDivisionError("oops")

    staged.rack.directories["old", "a"] = "a"
    staged.cluster.attach(A)
    staged.disks.reconstruct = staged.disks.find_devices = fail
    await staged.start()
    assert (await staged.end("old")).done()
    assert staged.rack.is_empty()
    assert {getattr(record, "error", "") for record in caplog.records} >= {"ZeroDivisionError: oops"}


async def test_a_pod_that_shares_the_device_keeps_it(staged, pod_on, disk_volume):
    staged.cluster.attach(A)
    await staged.start()
    for uid in ("u1", "u2"):
        staged.volumes.process(pod_on(disk_volume(), uid=uid))
    staged.report()
    await staged.settle()
    await restart(staged)
    assert (await staged.wait(pod_on(disk_volume(), uid="u2"))).done()
    await housekeeping(staged, "u2")
    assert staged.disks.downs == [("u1", "v")]
    assert staged.rack.staged == {"a": False}
    await staged.end("u2")
    assert staged.rack.is_empty()


@pytest.fixture(params=[False, True], ids=["filesystem", "block"])
def is_block(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["a controller attaches", "the agent attaches"])
async def machine(request, staged, is_block):
    """A machine with a claim on a disk, and agents that can be killed."""
    staged.attaches = request.param
    staged.cluster.add_claim(mode="Block" if is_block else "Filesystem")
    staged.cluster.attach(A)
    staged.begin()
    return staged


@pytest.fixture
def pod(pod_on, is_block):
    return pod_on(devices=["c"]) if is_block else pod_on(claims=["c"])


async def mount(node, pod):
    waiter = await node.wait(pod)
    node.report()
    await node.settle()
    return waiter


async def count_effects(node, pod):
    """How many side effects mounting has, and mounting and unmounting."""
    await node.start()
    assert (await mount(node, pod)).done()
    first = node.rack.effects
    await node.end("u")
    assert node.rack.is_empty()
    assert node.devices.is_empty()
    return first, node.rack.effects


def assert_mounted(node, *, is_block):
    assert "c" in node.volumes.mounted_volumes("u")
    assert node.rack.staged == {"a": is_block}
    if is_block:
        assert node.rack.published == {("u", "pv-a")}
        assert list(node.devices.links.values()) == ["/dev/a"]
        assert len(node.devices.binds) == len(node.devices.locks) == 1
    else:
        assert node.rack.mounted == {("u", "pv-a")}


async def test_a_pod_that_is_wanted_has_its_volume_after_any_kill(machine, pod, is_block):
    mounting, _ = await count_effects(machine, pod)
    assert mounting >= 3
    for number in range(1, mounting + 1):
        await restart(machine)
        machine.rack.effects, machine.rack.kill_after = 0, number
        await mount(machine, pod)
        assert machine.rack.killed.is_set()
        await restart(machine)
        assert (await mount(machine, pod)).done()
        await housekeeping(machine, "u")
        assert_mounted(machine, is_block=is_block)
        await machine.end("u")
        assert machine.rack.is_empty()
        assert machine.devices.is_empty()


async def test_nothing_is_left_of_a_pod_that_went_meanwhile_after_any_kill(machine, pod):
    _, effects = await count_effects(machine, pod)
    for number in range(1, effects + 1):
        await restart(machine)
        machine.rack.effects, machine.rack.kill_after = 0, number
        if (await mount(machine, pod)).done():
            await machine.end("u")
        assert machine.rack.killed.is_set()
        await restart(machine)
        await housekeeping(machine)
        assert machine.rack.is_empty(), number
        assert machine.devices.is_empty(), number
        assert machine.volumes.volumes_in_use() == ()
