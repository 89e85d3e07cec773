"""Changing owners, and what is reported of a change that takes long."""

import asyncio
from datetime import timedelta

import pytest

from klet.host.errors import HostError
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock
from klet.testing.csi.bench import FindingList
from klet.volumes.owner_change import OwnerChanger
from klet.volumes.ownership import Ownership


class SlowThreads:
    """A thread that changes files until the test lets it end."""

    def __init__(self, error=None):
        self.progress = None
        self.end = asyncio.Event()
        self._error = error

    async def run(self, _function, _root, _wanted, _depth, progress):
        self.progress = progress
        await self.end.wait()
        if self._error is not None:
            raise self._error


def start(group, threads, clock, tmp_path):
    findings = FindingList()
    pod = make_pod("p")
    root = tmp_path / pod.metadata.uid / "volumes" / "v"
    changer = OwnerChanger(recorder=findings, threads=threads, clock=clock)
    return pod, findings, group.create_task(changer.change(pod, root, Ownership(1)))


async def test_a_quick_change_is_not_reported(tmp_path):
    threads, clock = SlowThreads(), ManualClock()
    async with asyncio.TaskGroup() as group:
        _, findings, change = start(group, threads, clock, tmp_path)
        await clock.run(timedelta(seconds=29))
        threads.end.set()
        await change
    assert findings.findings == []


async def test_a_slow_change_is_reported_after_half_a_minute_and_then_each_minute(tmp_path):
    threads, clock = SlowThreads(), ManualClock()
    async with asyncio.TaskGroup() as group:
        pod, findings, change = start(group, threads, clock, tmp_path)
        await clock.run(timedelta(seconds=30))
        threads.progress.files = 7
        await clock.run(timedelta(seconds=120))
        threads.end.set()
        await change
    shown = f"{pod.metadata.uid}/volumes/v"
    first, *others = [finding.message for finding in findings.findings]
    assert first.startswith(
        f"Setting volume ownership for {shown} is taking longer than expected, consider using OnRootMismatch - https://"
    )
    assert others == [f"Setting volume ownership for {shown}, processed 7 files."] * 2
    assert {finding.decision for finding in findings.findings} == {"VolumePermissionChangeInProgress"}


async def test_a_failure_comes_out_as_it_is(tmp_path):
    threads, clock = SlowThreads(HostError("no")), ManualClock()
    threads.end.set()
    changer = OwnerChanger(recorder=FindingList(), threads=threads, clock=clock)
    with pytest.raises(HostError, match=r"^no$"):
        await changer.change(make_pod("p"), tmp_path, Ownership(1))
