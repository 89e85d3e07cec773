"""What is read of a machine whose files a test writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.machine import MachineReader
from klet.host.procfs import ProcReader
from klet.node.host_facts import HostFacts
from klet.node.observation import Machine, SystemVersions, Unknown


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(limit=1)
    yield made
    made.close()


@pytest.fixture
def write(tmp_path: Path):
    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return write


@pytest.fixture
def facts(tmp_path: Path, threads: Threads) -> HostFacts:
    return HostFacts(
        root=tmp_path,
        machine=MachineReader(root=tmp_path),
        proc=ProcReader(root=tmp_path),
        threads=threads,
        clock=SystemClock(),
    )


@pytest.fixture
def machine(write):
    write("proc/meminfo", "MemTotal: 1024 kB\nMemFree: 1 kB\nSwapTotal: 8 kB\nSwapFree: 8 kB\n")
    write("proc/sys/kernel/random/boot_id", "boot\n")
    write("sys/devices/system/cpu/online", "0-3\n")


def test_a_machine(facts, machine, write):
    write("etc/machine-id", "mid\n")
    write("sys/class/dmi/id/product_uuid", "uuid\n")
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n")
    assert facts.machine() == Machine(
        cpus=4,
        memory=1 << 20,
        hugepages={2 << 20: 3},
        swap=8192,
        machine_id="mid",
        system_uuid="uuid",
        boot_id="boot",
    )


def test_it_is_read_once(facts, machine, write):
    first = facts.machine()
    write("proc/meminfo", "MemTotal: 1 kB\n")
    assert facts.machine() is first


def test_a_machine_without_identifiers(facts, machine):
    found = facts.machine()
    assert (found.machine_id, found.system_uuid) == ("", "")


def test_a_machine_that_cannot_be_read_is_tried_again(facts, machine, write, tmp_path):
    (tmp_path / "proc/meminfo").unlink()
    assert isinstance(found := facts.machine(), Unknown)
    assert found.why.startswith("error getting machine info: cannot read")
    write("proc/meminfo", "MemTotal: 1024 kB\nMemFree: 1 kB\n")
    assert isinstance(facts.machine(), Machine)


def test_the_system(facts, write):
    write("proc/sys/kernel/osrelease", "6.1.0\n")
    assert isinstance(found := facts.versions(), Unknown)
    assert found.why.startswith("error getting version info: cannot read")
    write("etc/os-release", 'PRETTY_NAME="Debian GNU/Linux 12"\n')
    assert facts.versions() == SystemVersions("6.1.0", "Debian GNU/Linux 12")


async def test_storage(facts, tmp_path, threads):
    assert await facts.storage() > 0
    missing = HostFacts(
        root=tmp_path / "none",
        machine=MachineReader(root=tmp_path),
        proc=ProcReader(root=tmp_path),
        threads=threads,
        clock=SystemClock(),
    )
    assert await missing.storage() is None
