"""The meter on real directories: what pods may put there, and what hangs."""

import asyncio
import os
import threading
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.disk_usage import MOST_STUCK, DiskTarget, DiskTargetKind, DiskUsage, HostDiskMeter, NotMeasured
from klet.host.project_quotas import NoQuotas
from klet.host.tree_usage import TreeUsage
from klet.model.volumes import UsageSource

TREE, FILES, FILE, FILESYSTEM = (
    DiskTargetKind.TREE,
    DiskTargetKind.FILES,
    DiskTargetKind.FILE,
    DiskTargetKind.FILESYSTEM,
)


class QuickClock(SystemClock):
    """Real time, but nothing hangs for long."""

    async def wait(self, what, *, at_most):
        await super().wait(what, at_most=min(at_most, timedelta(seconds=0.2)))


@pytest.fixture
def threads():
    made = Threads(limit=2, name="test-disk")
    yield made
    made.close()


@pytest.fixture
def meter(threads):
    return HostDiskMeter(threads=threads, clock=SystemClock(), quotas=NoQuotas())


async def test_each_kind_is_measured(tmp_path, meter):
    (tmp_path / "pods" / "uid").mkdir(parents=True)
    (tmp_path / "pods" / "uid" / "etc-hosts").write_bytes(b"x" * 100)
    tree, files, file, whole, gone = targets = (
        DiskTarget(TREE, str(tmp_path / "pods"), 1),
        DiskTarget(FILES, str(tmp_path / "pods" / "uid"), 2),
        DiskTarget(FILE, str(tmp_path / "pods" / "uid" / "etc-hosts"), 2),
        DiskTarget(FILESYSTEM, str(tmp_path), 1),
        DiskTarget(TREE, str(tmp_path / "missing"), 1),
    )
    found = await meter.measure(targets)
    assert (found[tree].inodes, found[tree].source) == (3, UsageSource.DU)
    assert found[tree].filesystem.capacity == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert (found[files].used, found[files].inodes) == (found[file].used, 1)
    assert found[whole].source is UsageSource.STATFS
    assert found[gone].is_missing


async def test_a_link_on_the_way_is_not_followed(tmp_path, meter):
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "volume").symlink_to("/etc")
    (tmp_path / "pods" / "etc-hosts").symlink_to("/etc/hosts")
    tree, file = (
        DiskTarget(TREE, str(tmp_path / "pods/volume"), 1),
        DiskTarget(FILE, str(tmp_path / "pods/etc-hosts"), 1),
    )
    found = await meter.measure((tree, file))
    assert isinstance(found[tree], NotMeasured)
    assert isinstance(found[file], NotMeasured)


async def test_a_tree_with_too_many_entries_is_left_for_later(tmp_path, meter):
    for number in range(1200):
        (tmp_path / str(number)).touch()
    target = DiskTarget(TREE, str(tmp_path), 1)
    found = await meter.measure((target,), most=600)
    assert found[target].is_large
    assert (await meter.measure((target,)))[target].inodes == 1201


async def test_what_the_kernel_counts_is_not_walked(tmp_path, threads):
    class Quotas:
        def usage_of(self, _directory):
            return TreeUsage(used=7, inodes=2)

    meter = HostDiskMeter(threads=threads, clock=SystemClock(), quotas=Quotas())
    target = DiskTarget(TREE, str(tmp_path), 1)
    found = (await meter.measure((target,)))[target]
    assert (found.used, found.inodes, found.source, found.entries) == (7, 2, UsageSource.FSQUOTA, 0)


async def test_what_hangs_is_left_alone_until_it_answers(tmp_path, threads):
    dead = threading.Event()

    class Quotas:
        def usage_of(self, _directory):
            dead.wait()

    meter = HostDiskMeter(threads=threads, clock=QuickClock(), quotas=Quotas())
    stuck, other = DiskTarget(TREE, str(tmp_path), 1), DiskTarget(FILES, str(tmp_path), 1)
    try:
        assert isinstance((await meter.measure((stuck,)))[stuck], NotMeasured)
        found = await meter.measure((stuck, other))
        assert "has not ended" in found[stuck].reason
        assert isinstance(found[other], DiskUsage)
    finally:
        dead.set()


async def test_dead_filesystems_leave_threads_for_the_disks_of_the_machine(tmp_path):
    dead, threads = threading.Event(), Threads(limit=MOST_STUCK + 1, name="test-disk")

    class Quotas:
        def usage_of(self, _directory):
            dead.wait()

    meter = HostDiskMeter(threads=threads, clock=QuickClock(), quotas=Quotas())
    stuck = [DiskTarget(TREE, str(tmp_path), depth) for depth in range(1, MOST_STUCK + 1)]
    mount, own = DiskTarget(FILESYSTEM, str(tmp_path), 1), DiskTarget(FILES, str(tmp_path), 1)
    try:
        for target in stuck:
            await meter.measure((target,))
        found = await meter.measure((mount, *stuck, own))
        assert found[mount] == NotMeasured(reason="too many filesystems do not answer")
        assert isinstance(found[own], DiskUsage)
    finally:
        dead.set()
        threads.close()


async def test_a_walk_that_is_cancelled_leaves_nothing_open(tmp_path, meter):
    for number in range(3000):
        (tmp_path / str(number)).touch()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(meter.measure((DiskTarget(TREE, str(tmp_path), 1),)))
        await asyncio.sleep(0)
        task.cancel()
