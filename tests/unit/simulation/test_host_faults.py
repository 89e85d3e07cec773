"""Ports of a machine that fail, take their time, and serve no dead agent."""

from datetime import timedelta

import pytest

from klet.host.errors import HostError
from klet.simulation.host_faults import FailCall, HostFault, HostFaults, TakeLong
from klet.testing.loop import EPOCH, VirtualClock, run_virtual


class Disk:
    def __init__(self) -> None:
        self.written: list[str] = []

    async def write(self, text: str) -> str:
        self.written.append(text)
        return f"wrote {text}"

    def size(self) -> int:
        return len(self.written)


class Alive:
    """An agent that never dies."""

    async def before_call(self) -> bool:
        return False

    async def kill(self) -> None:
        raise AssertionError


def wrapped(faults: HostFaults, disk: Disk) -> Disk:
    return faults.wrap(disk, "disk", gate=Alive(), error=HostError)


def test_a_port_without_faults_is_as_it_was():
    async def main():
        disk = Disk()
        port = wrapped(HostFaults(clock=VirtualClock()), disk)
        return await port.write("a"), port.size(), disk.written

    assert run_virtual(main()) == ("wrote a", 1, ["a"])


@pytest.mark.parametrize(
    ("effect", "written"),
    [
        pytest.param(FailCall(), ["second"], id="it fails and does nothing"),
        pytest.param(FailCall(after_effect=True), ["first", "second"], id="it fails when it has done it"),
    ],
)
def test_a_call_that_fails(effect, written):
    async def main():
        faults, disk = HostFaults(clock=VirtualClock()), Disk()
        fault = faults.add(HostFault("disk", effect, count=1))
        port = wrapped(faults, disk)
        with pytest.raises(HostError, match="injected"):
            await port.write("first")
        await port.write("second")
        return disk.written, fault.hits

    assert run_virtual(main()) == (written, 1)


def test_a_call_that_takes_long():
    async def main():
        clock = VirtualClock()
        faults = HostFaults(clock=clock)
        faults.add(HostFault("disk", TakeLong(timedelta(seconds=5)), count=1))
        await wrapped(faults, Disk()).write("late")
        return clock.now()

    assert run_virtual(main()) == EPOCH + timedelta(seconds=5)


def test_faults_are_of_one_port_and_end():
    async def main():
        faults, disk = HostFaults(clock=VirtualClock()), Disk()
        faults.add(HostFault("tape", FailCall(), count=9))
        faults.add(HostFault("disk", FailCall(), count=9))
        faults.clear()
        await wrapped(faults, disk).write("fine")
        return disk.written

    assert run_virtual(main()) == ["fine"]
