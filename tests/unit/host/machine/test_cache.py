"""What of the machine is read once, and what for each use."""

import pytest

from klet.host.errors import FileMissing, HostError
from klet.host.machine.cache import MachineCache
from klet.host.machine.info import MachineInfo, SystemVersions


class ChangingMachine:
    """A machine that gets more memory and a new system at each reading."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.readings = 0

    def info(self):
        self._read()
        return MachineInfo(cpus=1, memory=self.readings)

    def versions(self):
        self._read()
        return SystemVersions("6.1.0", f"Debian {self.readings}")

    def _read(self):
        self.readings += 1
        if self.errors:
            raise self.errors.pop()


def test_the_machine_is_read_once():
    machine = ChangingMachine()
    cache = MachineCache(reader=machine)
    first = cache.info()
    assert cache.info() is first
    assert machine.readings == 1


def test_nothing_is_read_before_somebody_asks():
    machine = ChangingMachine()
    MachineCache(reader=machine)
    assert machine.readings == 0


def test_a_machine_that_cannot_be_read_is_tried_again(tmp_path):
    cache = MachineCache(reader=ChangingMachine(FileMissing("cannot read meminfo", path=tmp_path)))
    with pytest.raises(HostError, match="cannot read meminfo"):
        cache.info()
    assert cache.info().memory == 2
    assert cache.info().memory == 2


def test_the_system_is_read_for_each_use():
    cache = MachineCache(reader=ChangingMachine())
    assert [cache.versions().image for _ in range(2)] == ["Debian 1", "Debian 2"]
