"""What is read of a machine whose files a test writes."""

import os
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from klet.host.errors import CgroupMissing, FileMissing, HostError, MalformedFile
from klet.host.machine.info import Cpu, MemoryModules, NumaNode, SystemVersions
from klet.host.machine.reader import MachineReader, parse_os_release
from klet.testing.machines import XEON_2S_CLUSTERED, MachineShape, read_machine, write_machine

MOUNTS = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
OLD_MOUNTS = "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


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


def test_topology_that_the_kernel_does_not_report(machine, write):
    write("sys/devices/system/cpu/online", "0-1\n")
    write("sys/devices/system/cpu/cpu1/topology/physical_package_id", "-1\n")
    assert machine.topology() == (Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 0))


def write_dimm(write, place, kind, size):
    write(f"sys/devices/system/edac/mc/{place}/dimm_mem_type", f"{kind}\n")
    write(f"sys/devices/system/edac/mc/{place}/size", f"{size}\n")


def test_memory_modules_are_counted_by_type(machine, write):
    assert machine.dimms() == {}
    write_dimm(write, "mc0/dimm0", "Unbuffered-DDR4", 16384)
    write_dimm(write, "mc1/dimm12", "Unbuffered-DDR4", 8192)
    write_dimm(write, "mc1/dimm3", "Non-volatile-RAM", 1)
    write_dimm(write, "power/dimm0", "Unbuffered-DDR4", 1)
    write_dimm(write, "mc0/csrow0", "Unbuffered-DDR4", 1)
    assert machine.dimms() == {
        "Unbuffered-DDR4": MemoryModules(2, 24 << 30),
        "Non-volatile-RAM": MemoryModules(1, 1 << 20),
    }


@pytest.mark.parametrize("size", ["", "-1", "many"])
def test_memory_modules_that_cannot_be_read_are_left_out(machine, write, size):
    write_dimm(write, "mc0/dimm0", "Unbuffered-DDR4", 16384)
    write_dimm(write, "mc0/dimm1", "Unbuffered-DDR4", size)
    assert machine.dimms() == {}


def test_huge_pages_are_counted_by_size(machine, write):
    assert machine.hugepages() == {}
    write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n")
    assert machine.hugepages() == {2 << 20: 512, 1 << 30: 0}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"pid_max": "4194304\n", "threads-max": "15000\n"}, 15000, id="the lower of the two counts"),
        pytest.param({"pid_max": "32768\n"}, 32768, id="one that can be read"),
        pytest.param({"pid_max": "many\n", "threads-max": "9\n"}, 9, id="one that is a number"),
        pytest.param({}, None, id="none is known"),
    ],
)
def test_how_many_processes_there_may_be(machine, write, files, expected):
    for name, text in files.items():
        write(f"proc/sys/kernel/{name}", text)
    assert machine.max_processes() == expected


@pytest.fixture
def smallest(write):
    """Files without which there is no machine."""
    write("proc/meminfo", "MemTotal: 1024 kB\nMemFree: 1 kB\nSwapTotal: 8 kB\nSwapFree: 8 kB\n")
    write("proc/self/mountinfo", MOUNTS)
    write("proc/self/cgroup", "0::/system.slice\n")


def test_a_whole_machine(machine, smallest, write):
    write("sys/devices/system/cpu/online", "0-3\n")
    write("etc/machine-id", "mid\n")
    write("sys/class/dmi/id/product_uuid", "uuid\n")
    write("proc/sys/kernel/random/boot_id", "boot\n")
    write("proc/stat", "cpu  1 2 3\nintr 9 9 9\nbtime 1893456000\nprocesses 4\n")
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n")
    write("sys/fs/cgroup/system.slice/memory.swap.max", "max\n")
    write("sys/fs/selinux/enforce", "1")
    write("proc/self/uid_map", "0 100000 65536\n")
    write("sys/devices/system/cpu/cpu1/thermal_throttle/count", "0\n")
    info = machine.info()
    assert (info.cpus, info.online_cpus) == (4, {0, 1, 2, 3})
    assert (info.memory, info.swap, info.hugepages) == (1 << 20, 8192, {2 << 20: 3})
    assert (info.machine_id, info.system_uuid, info.boot_id) == ("mid", "uuid", "boot")
    assert info.booted_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert (info.cgroup_version, info.has_swap_controller, info.has_selinux) == (2, True, True)
    assert info.thermal_paths == ("/sys/devices/system/cpu/cpu1/thermal_throttle",)
    assert info.in_user_namespace
    assert info.page_size == os.sysconf("SC_PAGE_SIZE")
    assert info.agent_cpus == len(os.sched_getaffinity(0))
    assert info.hostname
    assert info.architecture


@pytest.mark.parametrize(
    ("directory", "enabled", "expected"),
    [
        pytest.param(True, "Y\n", True, id="enabled"),
        pytest.param(True, "N\n", False, id="built in, and switched off"),
        pytest.param(True, None, False, id="another kernel module there"),
        pytest.param(False, "Y\n", False, id="without its file system"),
    ],
)
def test_app_armor(machine, smallest, write, directory, enabled, expected):
    if directory:
        write("sys/kernel/security/apparmor/profiles", "")
    if enabled is not None:
        write("sys/module/apparmor/parameters/enabled", enabled)
    assert machine.info().has_app_armor is expected


SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(
    ("swaps", "expected"),
    [
        pytest.param(None, False, id="a kernel without swap"),
        pytest.param("", False, id="an empty file"),
        pytest.param(SWAPS, False, id="the heading alone"),
        pytest.param(f"{SWAPS}/dev/dm-1 partition\t1048572\t0\t-2\n", True, id="a partition"),
        pytest.param(f"{SWAPS}/swap file\t262140\t0\t-2\n/dev/zram0 partition\t4\t0\t9\n\n", True, id="two"),
    ],
)
def test_swap_is_on_if_any_is_listed(machine, smallest, write, swaps, expected):
    if swaps is not None:
        write("proc/swaps", swaps)
    assert machine.info().has_swap is expected


def test_a_list_of_swap_that_cannot_be_read_is_an_error(machine, smallest, tmp_path):
    (tmp_path / "proc/swaps").mkdir()
    with pytest.raises(HostError, match="proc/swaps"):
        machine.info()


def test_a_machine_that_says_little_of_itself(machine, smallest):
    info = machine.info()
    assert (info.machine_id, info.system_uuid, info.boot_id) == ("", "", "")
    assert info.booted_at is None
    assert (info.topology, info.hugepages, info.thermal_paths) == ((), {}, ())
    assert info.cpus == os.cpu_count()
    assert not info.has_swap_controller
    assert not info.has_selinux
    assert not info.in_user_namespace


def test_the_first_version_of_cgroups(machine, smallest, write):
    write("proc/self/mountinfo", OLD_MOUNTS)
    write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "0\n")
    info = machine.info()
    assert (info.cgroup_version, info.has_swap_controller) == (1, True)


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        pytest.param("proc/meminfo", "", MalformedFile, id="no memory"),
        pytest.param("proc/self/mountinfo", "", CgroupMissing, id="no cgroups"),
        pytest.param("sys/devices/system/cpu/online", "0-", MalformedFile, id="CPUs that nobody can count"),
        pytest.param("sys/devices/system/cpu/cpu0/topology/core_id", "x", MalformedFile, id="a core without a number"),
        pytest.param("sys/devices/system/node/node0/cpulist", "9" * 99, MalformedFile, id="a CPU beyond all numbers"),
        pytest.param("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "many", MalformedFile,
                     id="huge pages that nobody can count"),
        pytest.param("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "9" * 5000, HostError,
                     id="more huge pages than a number holds"),
    ],
)  # fmt: skip
def test_files_that_are_not_as_documented(machine, smallest, write, path, text, error):
    write("sys/devices/system/cpu/online", "0\n")
    write(path, text)
    with pytest.raises(error) as caught:
        machine.info()
    assert len(str(caught.value)) < 1000


def test_an_identifier_without_end_is_none(machine, smallest, write):
    write("etc/machine-id", "x" * (1 << 20))
    assert machine.info().machine_id == ""


def test_a_long_line_of_os_release_is_not_quoted_whole():
    with pytest.raises(MalformedFile) as caught:
        parse_os_release('A="' + "x" * 50_000)
    assert len(str(caught.value)) < 1000


def test_the_system(machine, write):
    write("proc/sys/kernel/osrelease", "6.1.0\n")
    with pytest.raises(FileMissing):
        machine.versions()
    write("etc/os-release", 'PRETTY_NAME="Debian GNU/Linux 12"\n')
    assert machine.versions() == SystemVersions("6.1.0", "Debian GNU/Linux 12")
    write("etc/os-release", "ID=strange\n")
    assert machine.versions() == SystemVersions("6.1.0", "Linux")


def test_thermal_files_come_in_the_order_of_the_cpus(machine, tmp_path):
    assert machine.thermal_paths() == ()
    for cpu in ("cpu10", "cpu2", "cpu1x", "cpufreq"):
        (tmp_path / "sys/devices/system/cpu" / cpu / "thermal_throttle").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/cpu3").mkdir()
    names = [path.split("/")[-2] for path in machine.thermal_paths()]
    assert names == ["cpu2", "cpu10"]


def test_numa_nodes(tmp_path):
    shape = replace(XEON_2S_CLUSTERED, hugepages={2 << 20: 8, 1 << 30: 1})
    info = read_machine(tmp_path, shape)
    assert [node.number for node in info.numa_nodes] == [0, 1, 2, 3]
    assert [node.memory for node in info.numa_nodes] == [96 << 30] * 4
    assert info.numa_nodes[1].hugepages == {2 << 20: 8, 1 << 30: 1}
    assert info.hugepages == {2 << 20: 32, 1 << 30: 4}
    assert info.numa_nodes[1].distances == {0: 11, 1: 10, 2: 21, 3: 21}
    assert {cpu.node for cpu in info.topology if cpu.socket == 1} == {2, 3}


def test_without_numa_nodes_each_socket_stands_for_one(machine, smallest, write):
    write("sys/devices/system/cpu/online", "0-3\n")
    for number in range(4):
        write(f"sys/devices/system/cpu/cpu{number}/topology/physical_package_id", f"{number % 2}\n")
    info = machine.info()
    assert info.numa_nodes == (NumaNode(number=0), NumaNode(number=1))
    assert [cpu.node for cpu in info.topology] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("meminfo", "", NumaNode(number=0, distances={0: 10}), id="no memory"),
        pytest.param("distance", "10 20\n", NumaNode(number=0, memory=1 << 20), id="a distance to no node"),
        pytest.param("distance", None, NumaNode(number=0, memory=1 << 20), id="no distances"),
    ],
)
def test_what_a_numa_node_does_not_say(machine, write, tmp_path, name, text, expected):
    write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:    1024 kB\n")
    write("sys/devices/system/node/node0/distance", "10\n")
    if text is None:
        (tmp_path / f"sys/devices/system/node/node0/{name}").unlink()
    else:
        write(f"sys/devices/system/node/node0/{name}", text)
    assert machine.numa_nodes() == (expected,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("meminfo", "Node 0 MemTotal: much kB\n", id="memory"),
        pytest.param("distance", "-1", id="a distance"),
        pytest.param("hugepages/hugepages-2048kB/nr_hugepages", "9" * 99, id="huge pages beyond all numbers"),
    ],
)
def test_a_numa_node_that_makes_no_sense(machine, write, name, text):
    write(f"sys/devices/system/node/node0/{name}", text)
    with pytest.raises(MalformedFile):
        machine.numa_nodes()


def caches(tmp_path, **shape):
    found = write_machine(tmp_path, MachineShape(threads=1, **shape)).topology()
    return [cpu.cache for cpu in found]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param({"cores_per_node": 4}, [None] * 4, id="one for the socket, which is a NUMA node"),
        pytest.param({"cores_per_node": 4, "cores_per_cache": 2}, [0, 0, 1, 1], id="two in a NUMA node"),
        pytest.param({"cores_per_node": 2, "nodes_per_socket": 2}, [0, 0, 0, 0], id="one for two NUMA nodes"),
        pytest.param(
            {"cores_per_node": 2, "sockets": 2, "cores_per_cache": 1},
            [0, 1, 2, 3],
            id="one for each core, in two sockets",
        ),
    ],
)
def test_caches_that_only_some_cores_share(tmp_path, shape, expected):
    assert caches(tmp_path, **shape) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("level", "2\n", id="a cache of cores"),
        pytest.param("level", "three\n", id="a level that is none"),
        pytest.param("id", "", id="an id that is none"),
        pytest.param("id", None, id="no id, as on some virtual machines"),
        pytest.param("shared_cpu_list", "7-\n", id="CPUs that are none"),
    ],
)
def test_caches_that_are_not_known(tmp_path, name, text):
    write_machine(tmp_path, MachineShape(cores_per_node=2, threads=1, cores_per_cache=1))
    for number in (0, 1):
        file = tmp_path / f"sys/devices/system/cpu/cpu{number}/cache/index3" / name
        file.unlink() if text is None else file.write_text(text)
    assert [cpu.cache for cpu in MachineReader(root=tmp_path).topology()] == [None, None]
