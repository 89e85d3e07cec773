"""What is read of the machine that the tests run on."""

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.machine import MachineReader
from klet.host.procfs import ProcReader
from klet.node.host_facts import HostFacts
from klet.node.observation import Machine, SystemVersions, Unknown


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[HostFacts]:
    threads = Threads(limit=2)
    yield HostFacts(root=tmp_path, machine=MachineReader(), proc=ProcReader(), threads=threads, clock=SystemClock())
    threads.close()


async def test_this_machine(facts):
    machine = facts.machine()
    assert isinstance(machine, Machine)
    assert machine.cpus > 0
    assert machine.memory > 0
    assert machine.boot_id
    assert isinstance(facts.versions(), SystemVersions)
    assert await facts.storage() > 0


async def test_addresses_of_this_machine(facts):
    found = await facts.addresses(name="localhost", prefer=4, lookup=True)
    assert ip_address("127.0.0.1") in found.local
    assert ip_address("127.0.0.1") in found.looked_up
    assert isinstance(found.default, Unknown) or found.default in found.local
    assert (await facts.addresses(name="localhost", prefer=4, lookup=False)).looked_up == ()
