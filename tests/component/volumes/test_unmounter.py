"""Unmounting what does not answer."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from klet.host.errors import MountError
from klet.volumes.device_mounts import MOST_LATE, Unmounter
from klet.volumes.errors import VolumeSetupError

BRIEF = timedelta(milliseconds=100)
MOUNTED = Path("/m")


class HungMounts:
    """A mount whose unmounting hangs until it is done by force, or for good."""

    def __init__(self, *, yields):
        self.yields = yields
        self.released = threading.Event()
        self.asked = []

    def is_bound(self, path):
        return path == MOUNTED

    def unmount(self, target, *, force=False):
        assert target == MOUNTED
        self.asked.append(force)
        if force and self.yields:
            self.released.set()
        assert self.released.wait(20)
        return True


async def test_an_unmount_that_takes_too_long_is_forced(threads):
    points = HungMounts(yields=True)
    assert await Unmounter(points=points, threads=threads, limit=BRIEF).unmount(MOUNTED)
    assert points.asked == [False, True]


async def test_one_that_hangs_even_then_is_an_error(threads):
    points = HungMounts(yields=False)
    with pytest.raises(VolumeSetupError, match=r"^unmount failed: it did not end within 0:00:00.1.*by force neither"):
        await Unmounter(points=points, threads=threads, limit=BRIEF).unmount(MOUNTED)
    assert points.asked == [False, True]
    points.released.set()


class BusyMounts(HungMounts):
    def unmount(self, target, *, force=False):
        raise MountError(f"cannot unmount {target}: Device or resource busy{' by force' if force else ''}", errno=16)


async def test_a_refusal_is_an_error_at_once_and_nothing_is_forced(threads):
    with pytest.raises(VolumeSetupError) as caught:
        await Unmounter(points=BusyMounts(yields=False), threads=threads, limit=BRIEF).unmount(MOUNTED)
    assert str(caught.value) == (
        "unmount failed: cannot unmount /m: Device or resource busy\nUnmounting arguments: /m\n"
        "Output: cannot unmount /m: Device or resource busy"
    )


async def test_what_hangs_is_not_tried_again_until_it_ends(threads):
    """Each try of a volume whose server is dead would take two more threads from all other volumes."""
    points = HungMounts(yields=False)
    unmounter = Unmounter(points=points, threads=threads, limit=BRIEF)
    for _ in range(10):
        with pytest.raises(VolumeSetupError, match="by force neither"):
            await unmounter.unmount(MOUNTED)
    assert points.asked == [False, True]
    points.released.set()
    while any(call.is_at_work for call in unmounter._late):
        await threads.run(points.released.wait)
    assert await unmounter.unmount(MOUNTED)


class DeadServers(HungMounts):
    def unmount(self, target, *, force=False):
        self.asked.append(force)
        return target.name == "alive" or self.released.wait(20)


async def test_dead_servers_leave_threads_for_others(threads):
    points = DeadServers(yields=False)
    unmounter = Unmounter(points=points, threads=threads, limit=BRIEF)
    for number in range(20):
        with pytest.raises(VolumeSetupError, match="unmount failed"):
            await unmounter.unmount(Path(f"/dead-{number}"))
    assert len(points.asked) == MOST_LATE
    assert await threads.run(lambda: True)
    points.released.set()
