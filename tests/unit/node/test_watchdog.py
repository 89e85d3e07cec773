"""When the service manager gets a sign of life."""

import asyncio
import random
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.host.systemd_notify import NotifyError
from klet.node.watchdog import Watchdog, WatchdogError, check_allowed
from klet.testing.loop import EPOCH, run_virtual


class Manager:
    """Notes each notification, and when it came."""

    def __init__(self, clock, *errors):
        self.clock = clock
        self.errors = list(errors)
        self.recorded = []

    def notify(self, state):
        self.recorded.append((round(self.clock.monotonic(), 1), state))
        if self.errors:
            raise self.errors.pop(0)
        return True


class Deaf:
    def notify(self, _state):
        return False


async def run_for(seconds, *errors, checks=None):
    clock = LoopClock(epoch=EPOCH)
    manager = Manager(clock, *errors)
    watchdog = Watchdog(
        manager=manager,
        allowed=timedelta(seconds=30),
        checks=checks or {},
        clock=clock,
        randomness=random.Random(1),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watchdog.run())
        await clock.sleep(timedelta(seconds=seconds))
        task.cancel()
    return [at for at, _ in manager.recorded]


async def well():
    return None


async def sick():
    return "the sync loop hangs"


def test_two_signs_in_the_time_that_is_allowed():
    assert run_virtual(run_for(31, checks={"ping": well})) == [0, 15, 30]


def test_no_sign_of_a_part_that_is_not_well(caplog):
    assert run_virtual(run_for(31, checks={"ping": well, "syncloop": sick})) == []
    assert (caplog.records[0].check, caplog.records[0].error) == ("syncloop", "the sync loop hangs")


def test_a_signal_that_was_missed_is_given_again():
    recorded = run_virtual(run_for(10, NotifyError("busy"), NotifyError("busy")))
    assert len(recorded) == 2
    assert 1 <= recorded[1] <= 1.1


def test_nobody_listens(caplog):
    async def run():
        await Watchdog(
            manager=Deaf(),
            allowed=timedelta(seconds=30),
            checks={},
            clock=LoopClock(epoch=EPOCH),
            randomness=random.Random(1),
        ).beat()

    run_virtual(run())
    assert caplog.records[0].error == "NOTIFY_SOCKET is unset"


def test_a_time_that_cannot_be_kept():
    with pytest.raises(WatchdogError, match=r"^configure watchdog timeout too small: 1s: "):
        check_allowed(timedelta(seconds=1))
    assert check_allowed(timedelta(seconds=2)) == timedelta(seconds=2)
