import pytest

from klet.host.errors import FileMissing, MalformedFile
from klet.host.machine import Cpu, MachineReader, go_architecture, parse_os_release


@pytest.fixture
def write(tmp_path):
    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return write


@pytest.fixture
def machine(tmp_path):
    return MachineReader(root=tmp_path)


def test_os_release():
    text = '# comment\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nODD=\'a "b"\'\n\nBARE\n'
    assert parse_os_release(text) == {
        "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)", "ID": "debian", "ODD": 'a "b"',
    }  # fmt: skip
    with pytest.raises(MalformedFile, match="os-release line"):
        parse_os_release('A="unfinished')


def test_os_release_has_a_second_place(machine, write):
    write("usr/lib/os-release", "ID=alpine\n")
    assert machine.os_release() == {"ID": "alpine"}


def test_machine_id_has_a_second_place(machine, write):
    with pytest.raises(FileMissing, match="machine-id"):
        machine.machine_id()
    write("var/lib/dbus/machine-id", "bb\n")
    assert machine.machine_id() == "bb"
    write("etc/machine-id", "aa\n")
    assert machine.machine_id() == "aa"


def test_system_uuid_falls_back(machine, write):
    write("etc/machine-id", "aa\n")
    assert machine.system_uuid() == "aa"
    write("proc/device-tree/vm,uuid", "cc\0")
    assert machine.system_uuid() == "cc"
    write("sys/class/dmi/id/product_uuid", "dd\n")
    assert machine.system_uuid() == "dd"


def test_topology(machine, write):
    write("sys/devices/system/cpu/online", "0-1,4\n")
    write("sys/devices/system/node/node0/cpulist", "0-1\n")
    write("sys/devices/system/node/node1/cpulist", "4-5\n")
    write("sys/devices/system/node/possible", "0-1\n")
    for number, core, socket in ((0, 0, 0), (1, 0, 0), (4, 2, 1)):
        write(f"sys/devices/system/cpu/cpu{number}/topology/core_id", f"{core}\n")
        write(f"sys/devices/system/cpu/cpu{number}/topology/physical_package_id", f"{socket}\n")
    assert machine.topology() == (Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 0), Cpu(4, 2, 1, 1))


def test_topology_that_the_kernel_does_not_tell(machine, write):
    write("sys/devices/system/cpu/online", "0-1\n")
    write("sys/devices/system/cpu/cpu1/topology/physical_package_id", "-1\n")
    assert machine.topology() == (Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 0))


def test_huge_pages_are_counted_by_size(machine, write):
    assert machine.hugepages() == {}
    write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n")
    assert machine.hugepages() == {2 << 20: 512, 1 << 30: 0}


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        pytest.param("x86_64", "amd64", id="Intel and AMD"),
        pytest.param("aarch64", "arm64", id="ARM"),
        pytest.param("riscv64", "riscv64", id="an architecture with one name"),
    ],
)
def test_names_of_architectures(machine, architecture):
    assert go_architecture(machine) == architecture
