"""A pod cannot make the agent measure what is not its own, nor keep it busy with a hostile tree."""

import os
import shutil
import subprocess

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.disk_usage import DiskTarget, DiskTargetKind, HostDiskMeter
from klet.host.project_quotas import NoQuotas
from klet.host.tree_usage import TreeWalk


def run(*command):
    subprocess.run(command, check=True)


@pytest.fixture
def mounted(tmp_path):
    """A volume in which something of another filesystem, and something of the same one, is mounted."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for directory in (volume / "tmpfs", volume / "bind", outside):
        directory.mkdir(parents=True)
    (outside / "data").write_bytes(b"x" * 1_000_000)
    (volume / "link").symlink_to("/etc")
    run("mount", "-t", "tmpfs", "tmpfs", str(volume / "tmpfs"))
    try:
        run("mount", "--bind", str(outside), str(volume / "bind"))
        try:
            (volume / "tmpfs" / "data").write_bytes(b"x" * 1_000_000)
            yield volume
        finally:
            run("umount", str(volume / "bind"))
    finally:
        run("umount", str(volume / "tmpfs"))


async def test_links_and_mounts_in_a_volume_are_not_counted(mounted):
    threads = Threads(limit=1, name="test-disk")
    try:
        target = DiskTarget(DiskTargetKind.TREE, str(mounted), 1)
        meter = HostDiskMeter(threads=threads, clock=SystemClock(), quotas=NoQuotas())
        found = (await meter.measure((target,)))[target]
    finally:
        threads.close()
    # The volume itself and the link: a mount point belongs to what is mounted there.
    assert found.inodes == 2
    assert found.used < 20_000


def test_a_tree_of_very_many_entries_takes_little_memory_and_is_done_in_slices(tmp_path):
    """200,000 names of four inodes: cheap to make."""
    for number in range(4):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "data").touch()
        for name in range(50_000):
            os.link(directory / "data", directory / str(name))
    root = os.open(tmp_path, os.O_RDONLY)
    walk = TreeWalk(root)
    slices = 1
    while not walk.step(500):
        slices += 1
    os.close(root)
    assert (walk.usage.inodes, walk.usage.entries) == (9, 200_008)
    assert slices > 400


def test_the_end_of_a_pod_during_the_walk_is_no_failure(tmp_path):
    volume = tmp_path / "volume"
    for number in range(200):
        (volume / str(number) / "below").mkdir(parents=True)
    root = os.open(volume, os.O_RDONLY)
    walk = TreeWalk(root)
    walk.step(50)
    shutil.rmtree(volume)
    while not walk.step(50):
        pass
    os.close(root)
    assert walk.usage.inodes >= 1
