"""Real cgroups, version 1 or 2 as the machine has it."""

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from klet.host.cgroups.discover import find_hugepage_sizes
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.errors import CgroupBusy, CgroupError, CgroupMissing
from klet.host.procfs import ProcReader

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

MIB = 1 << 20


@pytest.fixture
async def top(cgroups):
    """A cgroup of our own, gone afterwards with all below it."""
    name = CgroupName((f"klet-test-{os.getpid()}",))
    yield name
    await cgroups.kill_all(name)
    await cgroups.destroy(name)
    assert not cgroups.exists(name)


@pytest.fixture
def sleeper():
    """A process, not yet in a cgroup of ours."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def run_python():
    """Start a program inside a cgroup; it has done its work when this returns, and waits."""
    with ExitStack() as stack:

        def run(hierarchy, path, code):
            command = ["sh", "-c", f'read go; exec /usr/bin/python3 -c "{code}; print(1, flush=True); input()"']
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(process.communicate, "\n")
            enter(hierarchy, path, process.pid)
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "1\n"
            return process

        yield run


def enter(hierarchy, path, pid):
    """Move a process into a cgroup, in every controller that is mounted."""
    mounts = [Path("/sys/fs/cgroup")] if hierarchy.mode is CgroupMode.UNIFIED else hierarchy._mounts
    for mount in mounts:
        (mount / path.lstrip("/") / "cgroup.procs").write_text(str(pid))


async def test_create_values_and_destroy(cgroups, top):
    name = top.child("burstable", "pod1")
    assert not cgroups.exists(name)
    wanted = CgroupResources(
        cpu_shares=512, cpu_quota=50000, cpu_period=100000, memory_limit=64 * MIB, pids_limit=50, cpuset="0"
    )
    await cgroups.create(name, wanted)
    cgroups.validate(name)
    values = await cgroups.read(name)
    # Weight 20 reads back as fewer shares; version 1 keeps shares as they are.
    assert values.cpu_shares == (500 if cgroups.mode is CgroupMode.UNIFIED else 512)
    assert (values.cpu_quota, values.cpu_period) == (50000, 100000)
    assert (values.memory_limit, values.pids_limit) == (64 * MIB, 50)
    assert await cgroups.children(top) == {top.child("burstable")}
    await cgroups.destroy(name)
    assert not cgroups.exists(name)
    assert cgroups.exists(name.parent)


async def test_values_that_are_not_given_stay(cgroups, top):
    await cgroups.create(top, CgroupResources(memory_limit=64 * MIB, pids_limit=50))
    await cgroups.update(top, CgroupResources(cpu_shares=2))
    values = await cgroups.read(top)
    assert (values.cpu_shares, values.memory_limit, values.pids_limit) == (2, 64 * MIB, 50)


async def test_unlimited_again(cgroups, top):
    await cgroups.create(top, CgroupResources(memory_limit=64 * MIB, pids_limit=50, cpu_quota=50000))
    await cgroups.update(top, CgroupResources(memory_limit=-1, pids_limit=-1, cpu_quota=-1))
    values = await cgroups.read(top)
    assert (values.cpu_quota, values.pids_limit) == (-1, -1)
    assert values.memory_limit in {-1, 9223372036854771712}
    assert values.memory_limit is not None


async def test_creating_twice_is_fine(cgroups, top):
    await cgroups.create(top, CgroupResources())
    await cgroups.create(top, CgroupResources())
    assert cgroups.exists(top)


async def test_updating_what_is_not_there_names_the_file(cgroups, top):
    with pytest.raises(CgroupError, match=f"{top.last}"):
        await cgroups.update(top, CgroupResources(memory_limit=MIB))
    with pytest.raises(CgroupMissing, match=rf'cgroup \["{top.last}"\]'):
        cgroups.validate(top)


async def test_processes_are_found_below_and_killed(cgroups, hierarchy, top, sleeper):
    container = top.child("pod1", "container")
    await cgroups.create(container, CgroupResources())
    enter(hierarchy, cgroups.path(container), sleeper.pid)
    assert await cgroups.pids(top) == {sleeper.pid}
    assert cgroups.path(container) in ProcReader().process_cgroups(sleeper.pid).values()
    await cgroups.kill_all(top)
    assert sleeper.wait(timeout=10) == -signal.SIGKILL
    await cgroups.destroy(top.child("pod1"))
    assert not cgroups.exists(container)


async def test_a_cgroup_with_processes_is_not_removed(cgroups, hierarchy, top, sleeper):
    await cgroups.create(top, CgroupResources())
    enter(hierarchy, cgroups.path(top), sleeper.pid)
    with pytest.raises(CgroupBusy, match=r"failed to delete cgroup paths for \[klet-test-\d+\] : "):
        await cgroups.destroy(top)
    assert sleeper.poll() is None


async def test_usage_of_what_runs_there(cgroups, hierarchy, top, run_python):
    await cgroups.create(top, CgroupResources(memory_limit=256 * MIB))
    run_python(hierarchy, cgroups.path(top), "x = bytearray(8 << 20); sum(range(10**6))")
    usage = await cgroups.usage(top)
    assert usage.cpu is not None
    assert usage.cpu.total > 1_000_000
    assert usage.memory is not None
    assert usage.memory.rss >= 8 * MIB
    assert usage.memory.usage >= usage.memory.working_set >= 8 * MIB
    assert usage.memory.limit == 256 * MIB
    assert usage.pids == 1


async def test_usage_of_the_whole_machine(cgroups):
    usage = await cgroups.usage(CgroupName())
    assert usage.cpu is not None
    assert usage.memory is not None
    assert usage.memory.usage > 0


async def test_unified_values(cgroups, top):
    if cgroups.mode is not CgroupMode.UNIFIED:
        pytest.skip("needs cgroup version 2: test_cgroups_v2.py runs it, after apt-get install qemu-system-x86")
    await cgroups.create(top, CgroupResources(memory_min=MIB, memory_high=32 * MIB, unified={"memory.low": str(MIB)}))
    directory = Path("/sys/fs/cgroup") / top.last
    files = {name: (directory / name).read_text().strip() for name in ("memory.min", "memory.high", "memory.low")}
    assert files == {"memory.min": str(MIB), "memory.high": str(32 * MIB), "memory.low": str(MIB)}


async def test_huge_pages(cgroups, top):
    hugetlb = Path("/sys/fs/cgroup") / top.last / "hugetlb.2MB.max"
    if cgroups.mode is not CgroupMode.UNIFIED or 2 * MIB not in find_hugepage_sizes():
        pytest.skip("needs cgroup version 2 and huge pages: test_cgroups_v2.py, after apt-get install qemu-system-x86")
    await cgroups.create(top, CgroupResources(hugepages={2 * MIB: 6 * MIB}))
    assert int(hugetlb.read_text()) == 6 * MIB
    await cgroups.update(top, CgroupResources(cpu_shares=2))
    assert int(hugetlb.read_text()) == 0


async def test_a_threaded_cgroup_is_refused_for_memory(cgroups, top):
    if cgroups.mode is not CgroupMode.UNIFIED:
        pytest.skip("needs cgroup version 2: test_cgroups_v2.py runs it, after apt-get install qemu-system-x86")
    threaded = top.child("threaded")
    await cgroups.create(threaded, CgroupResources())
    directory = Path("/sys/fs/cgroup") / top.last / "threaded"
    control = directory.parent / "cgroup.subtree_control"
    control.write_text(" ".join(f"-{name}" for name in control.read_text().split()))
    (directory / "cgroup.type").write_text("threaded")
    with pytest.raises(CgroupError, match="it is in domain threaded mode"):
        await cgroups.create(threaded, CgroupResources(memory_limit=MIB))


async def test_a_memory_limit_below_the_usage_says_what_is_used(cgroups, hierarchy, top, run_python):
    if cgroups.mode is CgroupMode.UNIFIED:
        pytest.skip("only with cgroup version 1: version 2 takes any limit and reclaims afterwards")
    await cgroups.create(top, CgroupResources())
    run_python(hierarchy, cgroups.path(top), "x = bytearray(b'x') * (16 << 20)")
    with pytest.raises(CgroupError, match=r"unable to set memory limit to 4096 \(current usage: \d+, peak"):
        await cgroups.update(top, CgroupResources(memory_limit=4096))
