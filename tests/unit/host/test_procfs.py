from datetime import UTC, datetime, timedelta

import pytest

from klet.host.errors import FileMissing, MalformedFile
from klet.host.procfs import (
    CAP_SYS_ADMIN,
    CAP_SYS_RESOURCE,
    ProcReader,
    parse_command_line,
    parse_process_cgroups,
    parse_process_stat,
    parse_process_status,
    start_time,
)

STAT = "42 (a (strange) name) S 1 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200 300\n"
STATUS = """\
Name:\tsleep
Uid:\t1000\t1001\t1002\t1003
Gid:\t2000\t2000\t2000\t2000
VmRSS:\t     512 kB
CapEff:\t000001fffeffffff
"""


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
    (proc / "42").mkdir(parents=True)
    (proc / "self").mkdir()
    files = {"42/stat": STAT, "42/cmdline": "x\0", "self/status": STATUS, "self/cgroup": "0::/here\n"}
    for name, text in files.items():
        (proc / name).write_text(text)
    reader = ProcReader(root=tmp_path)
    assert reader.process_stat(42).pid == 42
    assert reader.command_line(42) == ("x",)
    assert reader.process_status().uid == 1000
    assert reader.process_cgroups()[""] == "/here"
    with pytest.raises(FileMissing):
        reader.process_stat(43)


@pytest.mark.parametrize("parse", [parse_process_stat, parse_process_cgroups])
def test_a_long_text_is_not_quoted_whole(parse):
    with pytest.raises(MalformedFile) as caught:
        parse("x" * 100_000)
    assert len(str(caught.value)) < 1000
