"""Volumes that CSI drivers find abnormal."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.errors import KletError
from klet.model.causes import CauseId
from klet.model.reasons import Reason
from klet.model.stats import PodDisk
from klet.stats.volume_health import LONGEST, VolumeHealth
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

MINUTE = timedelta(minutes=1)


class Disk:
    """What is measured of one pod."""

    def __init__(self):
        self.abnormal = {}
        self.error = None
        self.reads = 0

    async def pods(self):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return {"u": PodDisk(containers={}, abnormal_volumes=self.abnormal)}


class Notes:
    def __init__(self):
        self.findings = []

    def record(self, finding, *, parent=None):
        assert parent is None
        self.findings.append(finding)
        return CauseId(str(len(self.findings)))

    def messages(self):
        return [(finding.decision, finding.subject.name, finding.message) for finding in self.findings]


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def clock():
    return ManualClock()


@asynccontextmanager
async def running(disk, notes, clock, pods):
    health = VolumeHealth(disk=disk, pods=pods, period=MINUTE, recorder=notes, clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(health.run())
        await clock.run(timedelta())
        yield
        task.cancel()


async def test_an_abnormal_volume_is_an_event_of_its_pod_as_often_as_it_is_measured(disk, notes, clock):
    disk.abnormal = {"data": "dying", "logs": "x" * 10_000}
    async with running(disk, notes, clock, {"u": make_pod(name="web", uid="u")}):
        assert disk.reads == 0
        await clock.run(MINUTE)
        first, second = notes.messages()
        assert first == (Reason.VOLUME_CONDITION_ABNORMAL, "web", "Volume data: dying")
        assert len(second[2]) <= LONGEST + len("Volume logs: ")
        disk.abnormal = {}
        await clock.run(MINUTE)
        assert (disk.reads, len(notes.findings)) == (2, 2)


async def test_a_pod_that_is_gone_has_no_event(disk, notes, clock):
    disk.abnormal = {"data": "dying"}
    async with running(disk, notes, clock, {}):
        await clock.run(MINUTE)
    assert (disk.reads, notes.findings) == (1, [])


async def test_what_cannot_be_measured_is_measured_again(disk, notes, clock):
    disk.error = KletError("the runtime does not answer")
    async with running(disk, notes, clock, {"u": make_pod(name="web", uid="u")}):
        await clock.run(MINUTE)
        disk.abnormal, disk.error = {"data": "dying"}, None
        await clock.run(MINUTE)
    assert [message for *_, message in notes.messages()] == ["Volume data: dying"]
