"""Counters read from trees of plain files, which look as the kernel's do."""

import pytest

from klet.api.stats import PSIData, PSIStats
from klet.host.cgroups.samples import V1Files, V2Files, parse_blkio, parse_io_stat, parse_pressure
from klet.model.stats import NO_LIMIT, CpuCounters, DeviceIo, MemoryCounters

DISKS = {(8, 0): "/dev/sda"}
V1 = {
    "cpuacct/pod/cpuacct.usage": "5000000000\n",
    "cpuacct/pod/cpuacct.stat": "user 300\nsystem 100\n",
    "cpu/pod/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 700\n",
    "cpu/pod/cpu.shares": "512\n",
    "cpu/pod/cpu.cfs_quota_us": "50000\n",
    "cpu/pod/cpu.cfs_period_us": "100000\n",
    "memory/memory.use_hierarchy": "1\n",
    "memory/memory.memsw.limit_in_bytes": "9223372036854771712\n",
    "memory/pod/memory.usage_in_bytes": "1000\n",
    "memory/pod/memory.stat": (
        "cache 1\nrss 2\npgfault 7\npgmajfault 3\ntotal_cache 400\ntotal_rss 500\ntotal_mapped_file 50\n"
        "total_swap 20\ntotal_pgfault 70\ntotal_active_file 90\ntotal_inactive_file 300\n"
    ),
    "memory/pod/memory.kmem.usage_in_bytes": "60\n",
    "memory/pod/memory.max_usage_in_bytes": "1200\n",
    "memory/pod/memory.failcnt": "2\n",
    "memory/pod/memory.limit_in_bytes": "2000\n",
    "memory/pod/memory.memsw.limit_in_bytes": "3000\n",
    "memory/pod/memory.soft_limit_in_bytes": "9223372036854771712\n",
    "memory/pod/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n",
    "blkio/blkio.throttle.io_service_bytes_recursive": "Total 0\n",
    "blkio/pod/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 0\nTotal 4096\n",
    "blkio/pod/blkio.throttle.io_serviced_recursive": "8:0 Read 1\n8:0 Write 0\nTotal 1\n",
    "pids/pod/pids.current": "9\n",
    "pids/pod/pids.max": "max\n",
}
V2 = {
    "pod/cpu.stat": (
        "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 1000000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n"
    ),
    "pod/cpu.weight": "20\n",
    "pod/cpu.max": "50000 100000\n",
    "pod/memory.current": "1000\n",
    "pod/memory.stat": (
        "anon 500\nfile 400\nfile_mapped 50\ninactive_file 300\nactive_file 90\npgfault 7\npgmajfault 3\n"
    ),
    "pod/memory.swap.current": "20\n",
    "pod/memory.peak": "1200\n",
    "pod/memory.max": "2000\n",
    "pod/memory.swap.max": "max\n",
    "pod/memory.min": "0\n",
    "pod/memory.events": "low 0\noom_kill 9\n",
    "pod/memory.events.local": "low 0\noom_kill 6\n",
    "pod/io.stat": "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n",
    "pod/cpu.pressure": "some avg10=1.50 avg60=0.20 avg300=0.00 total=123\n",
    "pod/pids.current": "9\n",
    "pod/pids.max": "100\n",
    "memory.stat": "anon 10\nfile 20\ninactive_file 5\n",
    "cpu.stat": "usage_usec 1\n",
}


def plant(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def v1(tmp_path):
    plant(tmp_path, V1)
    controllers = {name: tmp_path / name for name in ("cpu", "cpuacct", "memory", "blkio", "pids")}
    return V1Files(controllers=controllers, ticks_per_second=100)


@pytest.fixture
def v2(tmp_path):
    plant(tmp_path, V2)
    return V2Files(root=tmp_path)


def test_version_1_is_read_by_cadvisors_formulas(v1):
    found = v1.read("/pod", DISKS)
    assert found.cpu == CpuCounters(
        usage=5_000_000_000,
        user=3_000_000_000,
        system=1_000_000_000,
        periods=10,
        throttled_periods=4,
        throttled=700,
        shares=512,
        quota=50000,
        period=100000,
    )
    assert found.memory == MemoryCounters(
        usage=1000,
        working_set=700,
        rss=500,
        cache=400,
        mapped_file=50,
        swap=20,
        kernel=60,
        max_usage=1200,
        failures=2,
        active_file=90,
        inactive_file=300,
        page_faults=7,
        major_page_faults=3,
        hierarchy_page_faults=7,
        hierarchy_major_page_faults=3,
        limit=2000,
        swap_limit=3000,
        reservation=9223372036854771712,
    )
    assert found.io == (DeviceIo(8, 0, "/dev/sda", {"Read": 4096, "Write": 0}, {"Read": 1, "Write": 0}),)
    assert (found.threads, found.threads_max, found.oom_events) == (9, 0, 6)


def test_version_2_is_read_by_cadvisors_formulas(v2):
    found = v2.read("/pod", DISKS)
    assert found.cpu == CpuCounters(
        usage=5_000_000_000,
        user=3_000_000_000,
        system=1_000_000_000,
        periods=10,
        throttled_periods=4,
        throttled=7000,
        shares=500,
        quota=50000,
        period=100000,
    )
    assert found.memory == MemoryCounters(
        usage=1000,
        working_set=700,
        rss=500,
        cache=400,
        mapped_file=50,
        swap=20,
        max_usage=1200,
        active_file=90,
        inactive_file=300,
        page_faults=7,
        major_page_faults=3,
        hierarchy_page_faults=7,
        hierarchy_major_page_faults=3,
        limit=2000,
        swap_limit=NO_LIMIT,
    )
    assert found.io == (DeviceIo(8, 0, "/dev/sda", {"Read": 4096, "Write": 0}, {"Read": 1, "Write": 0}),)
    assert (found.threads, found.threads_max, found.oom_events) == (9, 100, 6)
    assert found.pressure.cpu.some == PSIData(total=123, avg10=1.5, avg60=0.2)
    assert found.pressure.io == PSIStats()


def test_the_root_of_version_2_has_what_its_memory_stat_adds_up_to(v2):
    memory = v2.read("/", {}).memory
    assert memory is not None
    assert (memory.usage, memory.working_set) == (30, 25)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_cpu_time_alone_is_one_file(request, version):
    files = request.getfixturevalue(version)
    assert (files.cpu_usage("/pod"), files.cpu_usage("/gone")) == (5_000_000_000, None)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_cgroup_without_controllers_has_no_counters(request, version):
    found = request.getfixturevalue(version).read("/gone", {})
    assert (found.cpu, found.memory, found.io, found.threads) == (None, None, (), 0)


def test_no_quota_and_no_limit_of_memory_and_swap(v1, tmp_path):
    (tmp_path / "cpu/pod/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "memory/memory.memsw.limit_in_bytes").unlink()
    controllers = {name: tmp_path / name for name in ("cpu", "cpuacct", "memory")}
    found = V1Files(controllers=controllers, ticks_per_second=100).read("/pod", {})
    assert found.cpu is not None
    assert found.memory is not None
    assert (found.cpu.quota, found.memory.swap_limit, found.io, found.threads) == (None, 0, (), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(None, PSIStats(), id="a kernel without it"),
        pytest.param(b"", PSIStats(), id="an empty file"),
        pytest.param(
            b"some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=2\n",
            PSIStats(full=PSIData(total=2, avg10=0.5), some=PSIData(total=4, avg10=1.0, avg60=2.0, avg300=3.0)),
            id="both lines",
        ),
        pytest.param(b"some avg10=x total=-1\n", PSIStats(), id="no numbers"),
    ],
)
def test_pressure(text, expected):
    assert parse_pressure(text) == expected


@pytest.mark.parametrize("text", [b"Total 0\n", b"8:x Read 1\n", b"8:0 Read\n", b"8:0 Read x\n", b"\xff\n"])
def test_lines_that_are_not_of_a_device_are_left_out(text):
    assert parse_blkio(text) == {}
    assert parse_io_stat(text, {}) == ()
