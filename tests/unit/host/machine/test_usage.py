"""Measurements of a machine whose files a test writes."""

from datetime import UTC, datetime

import pytest

from klet.host.errors import FileError, MalformedFile
from klet.host.machine.usage import (
    MemoryUsage,
    SwapUsage,
    UsageReader,
    parse_boot_time,
    parse_meminfo,
    parse_swaps,
)

MEMINFO = """\
MemTotal:        8000 kB
MemFree:         1000 kB
MemAvailable:    5000 kB
SwapTotal:       2000 kB
SwapFree:        1500 kB
HugePages_Total:       4
"""
QUOTED = 1000


def test_meminfo():
    assert parse_meminfo(MEMINFO) == MemoryUsage(
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


@pytest.mark.parametrize(
    "amount",
    [
        pytest.param("²", id="a digit that is no number"),
        pytest.param("9" * 5000, id="more digits than Python converts"),
        pytest.param("x" * 100_000, id="a long text, which is not quoted whole"),
        pytest.param("-1", id="less than nothing"),
    ],
)
def test_a_hostile_amount_of_memory(amount):
    with pytest.raises(MalformedFile, match="field MemTotal") as caught:
        parse_meminfo(f"MemTotal: {amount} kB\nMemFree: 1 kB\n")
    assert len(str(caught.value)) < QUOTED


def test_boot_time():
    assert parse_boot_time("cpu 1 2\nbtime 1700000000\nprocesses 3\n") == datetime.fromtimestamp(1700000000, UTC)
    with pytest.raises(MalformedFile, match="btime"):
        parse_boot_time("cpu 1 2\n")


@pytest.mark.parametrize("seconds", ["²", "9" * 18, "9" * 5000, "", "-1"])
def test_a_hostile_boot_time(seconds):
    with pytest.raises(MalformedFile, match="btime"):
        parse_boot_time(f"btime {seconds}\n")


def test_swaps():
    text = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition  100  7  -2\n"
    assert parse_swaps(text) == (SwapUsage("/dev/sda2", "partition", 100 << 10, 7 << 10),)
    assert parse_swaps(text.splitlines()[0]) == ()
    with pytest.raises(MalformedFile, match="swaps line"):
        parse_swaps(text + "half a line\n")


def test_the_reader_reads_below_its_root(tmp_path):
    proc = tmp_path / "proc"
    proc.mkdir()
    files = {"meminfo": MEMINFO, "stat": "btime 1\n"}
    for name, text in files.items():
        (proc / name).write_text(text)
    reader = UsageReader(root=tmp_path)
    assert reader.memory().total == 8000 << 10
    assert reader.swaps() == ()
    assert reader.boot_time() == datetime.fromtimestamp(1, UTC)


def test_a_file_without_end(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(MEMINFO * 20_000)
    reader = UsageReader(root=tmp_path)
    with pytest.raises(FileError, match="longer than"):
        reader.memory()
