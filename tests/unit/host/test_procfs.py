from datetime import UTC, datetime, timedelta

import pytest

from klet.host.errors import FileMissing, MalformedFile
from klet.host.procfs import (
    CAP_SYS_ADMIN,
    CAP_SYS_RESOURCE,
    LoadAverage,
    Memory,
    ProcReader,
    Swap,
    parse_boot_time,
    parse_command_line,
    parse_cpu_models,
    parse_load_average,
    parse_meminfo,
    parse_process_cgroups,
    parse_process_stat,
    parse_process_status,
    parse_swaps,
    parse_uptime,
    start_time,
)

MEMINFO = """\
MemTotal:        8000 kB
MemFree:         1000 kB
MemAvailable:    5000 kB
SwapTotal:       2000 kB
SwapFree:        1500 kB
HugePages_Total:       4
"""
STAT = "42 (a (strange) name) S 1 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200 300\n"
STATUS = """\
Name:\tsleep
Uid:\t1000\t1001\t1002\t1003
Gid:\t2000\t2000\t2000\t2000
VmRSS:\t     512 kB
CapEff:\t000001fffeffffff
"""


def test_meminfo():
    assert parse_meminfo(MEMINFO) == Memory(
        total=8000 << 10, free=1000 << 10, available=5000 << 10, swap_total=2000 << 10, swap_free=1500 << 10
    )


def test_meminfo_of_an_old_kernel_without_swap():
    memory = parse_meminfo("MemTotal: 8 kB\nMemFree: 4 kB\n")
    assert (memory.available, memory.swap_total) == (4096, 0)


def test_malformed_meminfo_names_the_field():
    with pytest.raises(MalformedFile, match="meminfo: field MemTotal is 'lots'"):
        parse_meminfo("MemTotal: lots\nMemFree: 1 kB\n")
    with pytest.raises(MalformedFile, match="field MemTotal is 'missing'"):
        parse_meminfo("")


def test_boot_time():
    assert parse_boot_time("cpu 1 2\nbtime 1700000000\nprocesses 3\n") == datetime.fromtimestamp(1700000000, UTC)
    with pytest.raises(MalformedFile, match="btime"):
        parse_boot_time("cpu 1 2\n")


def test_uptime_and_load():
    assert parse_uptime("12.50 20.00\n") == timedelta(seconds=12.5)
    assert parse_load_average("0.10 0.20 0.30 2/345 999\n") == LoadAverage(0.1, 0.2, 0.3, 2, 345)


@pytest.mark.parametrize("text", ["", "x y"])
def test_malformed_uptime_and_load(text):
    with pytest.raises(MalformedFile):
        parse_uptime(text)
    with pytest.raises(MalformedFile):
        parse_load_average(text)


def test_swaps():
    text = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition  100  7  -2\n"
    assert parse_swaps(text) == (Swap("/dev/sda2", "partition", 100 << 10, 7 << 10),)
    assert parse_swaps(text.splitlines()[0]) == ()


def test_cpu_models():
    text = "processor\t: 0\nmodel name\t: Fast 3000\n\nprocessor\t: 1\n\nHardware : board\n"
    assert parse_cpu_models(text) == ("Fast 3000", "")


def test_process_stat_with_brackets_in_the_name():
    stat = parse_process_stat(STAT)
    assert (stat.pid, stat.name, stat.state, stat.parent) == (42, "a (strange) name", "S", 1)
    assert (stat.group, stat.session, stat.threads, stat.start_ticks) == (42, 41, 3, 12345)


@pytest.mark.parametrize("text", ["", "42", "42 (x) S", "x (y) S " + "1 " * 30])
def test_malformed_process_stat(text):
    with pytest.raises(MalformedFile, match="process stat"):
        parse_process_stat(text)


def test_process_start():
    boot = datetime(2024, 1, 1, tzinfo=UTC)
    started = start_time(parse_process_stat(STAT), boot_time=boot, ticks_per_second=100)
    assert started == boot + timedelta(seconds=123.45)


def test_process_status_and_capabilities():
    status = parse_process_status(STATUS)
    assert (status.name, status.uid, status.gid, status.resident) == ("sleep", 1000, 2000, 512 << 10)
    assert status.has_capability(CAP_SYS_ADMIN)
    assert not status.has_capability(CAP_SYS_RESOURCE)


def test_malformed_process_status():
    with pytest.raises(MalformedFile, match="CapEff"):
        parse_process_status("Name: x\nUid: 1\nGid: 1\n")


def test_process_cgroups_of_both_versions():
    text = "9:name=systemd:/\n2:cpu,cpuacct:/kubepods/pod:1\n0::/unified\n"
    assert parse_process_cgroups(text) == {
        "name=systemd": "/", "cpu": "/kubepods/pod:1", "cpuacct": "/kubepods/pod:1", "": "/unified",
    }  # fmt: skip
    with pytest.raises(MalformedFile):
        parse_process_cgroups("nonsense\n")


def test_command_line():
    assert parse_command_line(b"sleep\x0060\0") == ("sleep", "60")
    assert parse_command_line(b"a\0\0") == ("a", "")
    assert parse_command_line(b"") == ()


def test_the_reader_reads_below_its_root(tmp_path):
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "42").mkdir()
    (proc / "self").mkdir()
    files = {
        "meminfo": MEMINFO, "stat": "btime 1\n", "uptime": "5.0 1.0\n", "loadavg": "0 0 0 1/2 3\n",
        "cpuinfo": "processor : 0\n", "sys/kernel/random/boot_id": "abc\n", "sys/kernel/osrelease": "6.1.0\n",
        "sys/kernel/pid_max": "4194304\n", "42/stat": STAT, "42/cmdline": "x\0", "self/status": STATUS,
        "self/cgroup": "0::/here\n",
    }  # fmt: skip
    for name, text in files.items():
        (proc / name).write_text(text)
    reader = ProcReader(root=tmp_path)
    assert reader.memory().total == 8000 << 10
    assert reader.swaps() == ()
    assert reader.boot_time() == datetime.fromtimestamp(1, UTC)
    assert reader.boot_id() == "abc"
    assert reader.uptime() == timedelta(seconds=5)
    assert reader.load_average().threads == 2
    assert reader.kernel_version() == "6.1.0"
    assert reader.max_pid() == 4194304
    assert reader.cpu_models() == ("",)
    assert reader.process_stat(42).pid == 42
    assert reader.command_line(42) == ("x",)
    assert reader.process_status().uid == 1000
    assert reader.process_cgroups()[""] == "/here"
    with pytest.raises(FileMissing):
        reader.process_stat(43)
