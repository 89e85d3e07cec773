"""Mounting, formatting, checking and growing with tools that note what they are called with."""

from datetime import timedelta
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.host.errors import ProcessFailed, ProcessTimeout
from klet.host.storage.disk_formats import (
    DiskFormatError,
    DiskFormats,
    DiskMount,
    DiskNotFormatted,
    WrongFilesystem,
)
from klet.host.storage.mount_tool import MountTool, MountToolFailed
from klet.host.storage.tools import HostTools, search_path
from klet.testing.storage import RecordingTools

EXT4 = "echo TYPE=ext4"
EMPTY = "exit 2"


@pytest.fixture
def machine(tmp_path):
    made = RecordingTools(tmp_path / "bin")
    for name in ("mount", "fsck", "mkfs.ext4", "mkfs.xfs", "resize2fs", "xfs_growfs"):
        made.add(name)
    return made


@pytest.fixture
def threads():
    made = Threads(limit=2)
    yield made
    made.close()


@pytest.fixture
def mounts(machine, threads):
    return MountTool(tools=machine.tools, threads=threads)


@pytest.fixture
def formats(machine, mounts):
    return DiskFormats(tools=machine.tools, mounts=mounts)


def disk(**fields):
    return DiskMount(**{"disk": "/dev/sdz", "target": Path("/t"), **fields})


async def test_mount_is_called_with_type_options_source_and_target(machine, mounts):
    await mounts.mount("srv:/export", Path("/t"), fs_type="nfs", options=["hard", "ro"])
    assert machine.calls("mount") == [["-t", "nfs", "-o", "hard,ro", "srv:/export", "/t"]]


async def test_a_failed_mount_shows_its_call_and_output_but_no_secret(machine, mounts):
    machine.add("mount", "echo access denied >&2; exit 32")
    with pytest.raises(MountToolFailed) as caught:
        await mounts.mount("srv:/e", Path("/t"), fs_type="cifs", options=["ro"], secret_options=["password=hush"])
    assert str(caught.value) == (
        "mount failed: exit status 32\nMounting command: mount\n"
        "Mounting arguments: -t cifs -o ro,<masked> srv:/e /t\nOutput: access denied\n"
    )
    [call] = machine.calls("mount")
    assert call[3] == "ro,password=hush"


async def test_a_source_is_never_an_option(machine, mounts):
    with pytest.raises(MountToolFailed, match="does not begin with '-'"):
        await mounts.mount("--all", Path("/t"), fs_type="nfs", options=[])
    assert machine.calls() == []


async def test_a_tool_that_is_missing_or_hangs_shows_no_arguments(tmp_path, machine):
    machine.add("hang", "exec sleep 60")
    tools = machine.tools
    with pytest.raises(ProcessFailed, match=r'^exec: "nothing-like-it": executable file not found in \$PATH$'):
        await tools.run("nothing-like-it", "secret")
    with pytest.raises(ProcessTimeout, match=r"^hang was killed: it did not end within") as caught:
        await tools.run("hang", "secret", timeout=timedelta(milliseconds=200))
    assert "secret" not in str(caught.value)
    with pytest.raises(ProcessFailed, match="NUL byte"):
        await tools.run("hang", "a\0b")


async def test_tools_are_looked_for_where_a_machine_has_them_and_run_in_the_c_locale(machine, monkeypatch):
    assert search_path({}).split(":")[-1] == "/bin"
    assert search_path({"PATH": "/opt/x"}).startswith("/opt/x:")
    monkeypatch.setenv("SECRET_OF_AGENT", "1")
    machine.add("show", "env")
    done = await HostTools(search=f"{machine.directory}:/usr/bin:/bin").run("show")
    names = {line.partition(b"=")[0] for line in done.stdout.splitlines()}
    assert b"LC_ALL=C" in done.stdout
    assert b"SECRET_OF_AGENT" not in names


@pytest.mark.parametrize(
    ("blkid", "request_of", "calls"),
    [
        pytest.param(
            EMPTY,
            disk(),
            [["mkfs.ext4", "-F", "-m0", "/dev/sdz"], ["mount", "-t", "ext4", "-o", "defaults", "/dev/sdz", "/t"]],
            id="an empty disk gets ext4",
        ),
        pytest.param(
            EMPTY,
            disk(fs_type="xfs", options=("noatime",)),
            [["mkfs.xfs", "-f", "/dev/sdz"], ["mount", "-t", "xfs", "-o", "noatime,defaults", "/dev/sdz", "/t"]],
            id="or what it is asked for",
        ),
        pytest.param(
            EXT4,
            disk(),
            [["fsck", "-a", "/dev/sdz"], ["mount", "-t", "ext4", "-o", "defaults", "/dev/sdz", "/t"]],
            id="one with a filesystem is checked",
        ),
        pytest.param(
            EXT4,
            disk(options=("ro",)),
            [["mount", "-t", "ext4", "-o", "ro,defaults", "/dev/sdz", "/t"]],
            id="unless it may only be read",
        ),
    ],
)
async def test_what_is_done_with_a_disk(machine, formats, blkid, request_of, calls):
    machine.add("blkid", blkid)
    await formats.format_and_mount(request_of)
    assert machine.calls() == [
        ["blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "/dev/sdz"],
        *calls,
    ]


async def test_nothing_is_written_to_a_disk_that_may_only_be_read(machine, formats):
    machine.add("blkid", EMPTY)
    with pytest.raises(
        DiskNotFormatted,
        match=r"^cannot mount unformatted disk /dev/sdz as we are manipulating it in read-only mode$",
    ):
        await formats.format_and_mount(disk(options=("ro",)))
    assert [call[0] for call in machine.calls()] == ["blkid"]


async def test_a_disk_that_cannot_be_looked_at_is_not_formatted(machine, formats):
    machine.add("blkid", "echo no permission >&2; exit 4")
    with pytest.raises(DiskFormatError, match="failed to get disk format of disk /dev/sdz: exit status 4: no perm"):
        await formats.format_and_mount(disk())
    assert [call[0] for call in machine.calls()] == ["blkid"]


async def test_a_partitioned_disk_is_neither_formatted_nor_mounted_as_another(machine, formats):
    machine.add("blkid", "echo PTTYPE=gpt")
    machine.add("mount", "exit 32")
    with pytest.raises(WrongFilesystem, match="it already contains unknown data, probably partitions"):
        await formats.format_and_mount(disk())
    assert "mkfs.ext4" not in [call[0] for call in machine.calls()]


@pytest.mark.parametrize(("code", "is_mounted"), [(0, True), (1, True), (4, False), (8, True), (127, True)], ids=str)
async def test_only_errors_that_fsck_could_not_correct_stop_a_mount(machine, formats, code, is_mounted):
    machine.add("blkid", EXT4)
    machine.add("fsck", f"echo broken; exit {code}")
    if is_mounted:
        await formats.format_and_mount(disk())
    else:
        with pytest.raises(
            DiskFormatError, match=r"^'fsck' found errors on device /dev/sdz but could not correct them: broken"
        ):
            await formats.format_and_mount(disk())
    assert ("mount" in [call[0] for call in machine.calls()]) is is_mounted


async def test_another_filesystem_is_only_an_error_if_it_does_not_mount(machine, formats):
    machine.add("blkid", EXT4)
    await formats.format_and_mount(disk(fs_type="xfs"))
    machine.add("mount", "echo wrong fs type; exit 32")
    with pytest.raises(WrongFilesystem, match=r'^failed to mount the volume as "xfs", it already contains ext4'):
        await formats.format_and_mount(disk(fs_type="xfs"))
    with pytest.raises(DiskFormatError, match=r"^mount failed: exit status 32") as caught:
        await formats.format_and_mount(disk(fs_type="ext4"))
    assert not isinstance(caught.value, WrongFilesystem)


async def test_a_disk_that_cannot_be_formatted_is_not_mounted(machine, formats):
    machine.add("blkid", EMPTY)
    machine.add("mkfs.ext4", "echo too small; exit 1")
    with pytest.raises(DiskFormatError, match=r"errcode:\(exit status 1\) output:\(too small\n\)"):
        await formats.format_and_mount(disk())
    assert [call[0] for call in machine.calls()] == ["blkid", "mkfs.ext4"]


async def test_growing(machine, formats):
    machine.add("blkid", "echo TYPE=xfs")
    await formats.grow("/dev/sdz", "/t")
    assert machine.calls("xfs_growfs") == [["-d", "/t"]]
    machine.add("blkid", EXT4)
    machine.add("resize2fs", "echo busy; exit 1")
    with pytest.raises(
        DiskFormatError, match=r"resize of device /dev/sdz failed: exit status 1. resize2fs output: busy"
    ):
        await formats.grow("/dev/sdz", "/t")
    machine.add("blkid", "echo TYPE=vfat")
    with pytest.raises(DiskFormatError, match="resize of format vfat is not supported"):
        await formats.grow("/dev/sdz", "/t")
