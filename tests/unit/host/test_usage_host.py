"""The machine as the statistics see it, over trees of plain files."""

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.cgroups.samples import V2Files
from klet.host.errors import MalformedFile
from klet.host.machine.filesystems import FilesystemReader, choose_mounts, parse_diskstats
from klet.host.mountinfo import parse_mountinfo
from klet.host.usage_host import UsageHost, choose_own_cgroup
from klet.model.stats import CgroupRequest, DiskCounters, FoundCgroup, ProcessLimits

MEMINFO = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n"
MOUNTS = """\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:1 /x /data rw - ext4 /dev/sda1 rw
22 20 0:5 / /proc rw - proc proc rw
23 20 0:6 / /run rw - tmpfs tmpfs rw
24 20 0:7 / /tmp rw - tmpfs tmpfs rw
25 20 0:8 / /run/containerd/io/1/rootfs rw - overlay overlay rw
26 20 0:9 / /var/lib/kubelet/pods/u/volumes/s rw - tmpfs tmpfs rw
27 20 0:10 / /share rw - nfs4 server:/share rw
28 20 0:11 / /run/containerd/sandboxes/1/shm rw - tmpfs shm rw
"""


@pytest.fixture
def threads():
    pool = Threads(limit=1)
    yield pool
    pool.close()


@pytest.fixture
def host(tmp_path, threads):
    for name, text in {
        "cg/cgroup.procs": "1\n",
        "cg/cpu.stat": "usage_usec 7\n",
        "cg/memory.stat": "anon 10\nfile 20\n",
        "cg/kubepods/cgroup.procs": "",
        "cg/kubepods/podx/cgroup.procs": "",
        "cg/kubepods/podx/c1/cgroup.procs": "7\n",
        "cg/kubepods/podx/c1/cpu.stat": "usage_usec 5\n",
        "cg/kubepods/podx/run.mount/cgroup.procs": "",
        "cg/other/cgroup.procs": "",
        "proc/meminfo": MEMINFO,
        "proc/diskstats": "",
        "proc/loadavg": "0.1 0.2 0.3 2/345 999\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/sys/kernel/threads-max": "1000\n",
        "proc/7/limits": "Max open files 64 64 files\n",
        "proc/7/net/dev": "a\nb\neth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n",
        "proc/7/fd/0": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return UsageHost(
        files=V2Files(root=tmp_path / "cg"),
        filesystems=FilesystemReader(root=tmp_path, own=tmp_path),
        threads=threads,
        clock=SystemClock(),
        root=tmp_path,
    )


async def test_cgroups_are_found_below_the_roots_parents_first(host):
    found = await host.find(("/kubepods", "/gone"))
    assert [each.path for each in found] == ["/", "/kubepods", "/kubepods/podx", "/kubepods/podx/c1"]


async def test_a_container_is_read_with_its_first_process(host):
    found = FoundCgroup("/kubepods/podx/c1", 1, 0.0)
    readings = await host.read([CgroupRequest(found, is_container=True, has_network=True)])
    reading = readings[found.path]
    assert reading.cpu.usage == 5000
    assert (reading.processes.processes, reading.processes.file_descriptors) == (1, 1)
    assert reading.processes.max_open_files == 64
    assert [each.name for each in reading.network] == ["eth0"]


async def test_the_limits_of_the_root_are_those_of_the_machine(host):
    memory = (await host.read([CgroupRequest(FoundCgroup("/", 1, 0.0))]))["/"].memory
    assert (memory.usage, memory.limit, memory.swap_limit, memory.swap) == (30, 1000 << 10, 10 << 10, 6 << 10)


async def test_a_cgroup_that_is_gone_is_left_out(host):
    assert await host.read([CgroupRequest(FoundCgroup("/gone", 1, 0.0))]) == {}


async def test_cpu_time_alone(host):
    found = await host.cpu_usage(["/", "/kubepods/podx/c1", "/gone"])
    assert {path: usage for path, (_, usage) in found.items()} == {"/": 7000, "/kubepods/podx/c1": 5000}


async def test_limits_of_processes(host, tmp_path):
    assert await host.process_limits() == ProcessLimits(maximum=1000, current=345)
    (tmp_path / "proc/loadavg").write_text("")
    with pytest.raises(MalformedFile, match="loadavg"):
        await host.process_limits()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0::/system.slice/klet.service\n", "/system.slice/klet.service", id="version 2"),
        pytest.param("2:cpu,cpuacct:/a\n3:memory:/a\n", "/a", id="version 1"),
        pytest.param("2:cpu:/a\n3:memory:/b\n", "", id="different ones for CPU and memory"),
        pytest.param("1:name=systemd:/s\n2:cpu:/a\n3:memory:/b\n", "/s", id="systemd's"),
    ],
)
def test_the_cgroup_of_the_agent(text, expected):
    assert choose_own_cgroup(text) == expected


def test_filesystems_of_the_machine_without_those_of_pods():
    chosen = choose_mounts(parse_mountinfo(MOUNTS), own="/var/lib/kubelet")
    assert {device: mount.mount_point for device, mount in chosen.items()} == {
        "/dev/sda1": "/",
        "/run": "/run",
        "/tmp": "/tmp",
    }


def test_counters_of_disks():
    text = b"   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 0 0\n   8  x\n"
    assert parse_diskstats(text) == {"8:0": DiskCounters(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)}
