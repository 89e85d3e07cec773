"""Node allocatable, its repair and the places of processes on real cgroups: only below one that the test makes."""

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.api.quantity import Format, Quantity
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.members import CgroupMembers
from klet.host.cgroups.resources import CgroupResources
from klet.host.cpulist import format_cpu_list
from klet.host.machine.reader import MachineReader
from klet.host.procfs import parse_process_cgroups
from klet.journal.memory import MemoryJournal
from klet.resources.cgroup_values import QosRules
from klet.resources.node_allocatable import RETRY, NodeAllocatable, NotEnforced
from klet.resources.node_processes import SystemProcesses
from klet.resources.node_values import Enforcement, NodeAllocatableRules
from klet.resources.qos_cgroups import QosCgroups
from klet.testing.clock import ManualClock

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

MIB = 1 << 20
CPUS = format_cpu_list(MachineReader().online_cpus())
HOG = "import sys; kept = bytearray({size}); print(1, flush=True); sys.stdin.readline()"
STAY = """
import asyncio, os, sys
from pathlib import Path
from klet.aio.threads import Threads
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.members import CgroupMembers

async def main():
    Path(sys.argv[2], str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    threads = Threads(limit=1)
    members = CgroupMembers(hierarchy=find_hierarchy(), threads=threads, proc=Path(sys.argv[2]))
    print(await members.place_agent(sys.argv[1]), await members.place_agent(sys.argv[1]), flush=True)
    print(await members.set_agent_oom_score(700), await members.set_agent_oom_score(700), flush=True)
    threads.close()

asyncio.run(main())
sys.stdin.readline()
"""


def rules(*levels, memory=64 * MIB, **changes):
    given = NodeAllocatableRules(
        capacity={"cpu": Quantity.of(4), "memory": Quantity.of(memory, Format.BINARY_SI), "pid": Quantity.of(500)},
        system_reserved={"cpu": Quantity.of(1), "memory": Quantity.of(16 * MIB, Format.BINARY_SI)},
        enforced=frozenset(Enforcement(level) for level in levels or ("pods",)),
        cpus=CPUS,
    )
    return replace(given, **changes)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def journal(clock):
    return MemoryJournal(clock=clock)


@pytest.fixture
def build(cgroups, kubepods, journal, clock):
    def build(given):
        return NodeAllocatable(cgroups=cgroups, root=kubepods, rules=given, recorder=journal, clock=clock)

    return build


@pytest.fixture
def proc(tmp_path):
    """A /proc in which process 1 may be looked at, which takes a capability; add the processes of a test."""
    (tmp_path / "1/ns").mkdir(parents=True)
    (tmp_path / "1/ns/pid").symlink_to(Path("/proc/self/ns/pid").readlink())
    return tmp_path


@pytest.fixture
def members(hierarchy, proc, sleeper):
    (proc / str(sleeper.pid)).symlink_to(f"/proc/{sleeper.pid}")
    threads = Threads(limit=1)
    yield CgroupMembers(hierarchy=hierarchy, threads=threads, proc=proc)
    threads.close()


def messages(journal):
    return [cause.finding.message for cause in journal.all()]


def read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def places(pid: int) -> set[str]:
    """The cgroup of a process in every tree that has controllers."""
    found = parse_process_cgroups(read(pid, "cgroup"))
    return {path for name, path in found.items() if name or len(found) == 1}


@contextmanager
def python(code: str, *arguments: str):
    """A program of the test's own, which works when something comes in and ends when there is nothing more."""
    command = [sys.executable, "-P", "-c", f"import sys; sys.stdin.readline()\n{code}", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def go(process) -> str:
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout.readline()


def kept(cgroups, shares: int) -> int:
    """What is read back: weights of version 2 are coarser."""
    return (1 + (shares - 2) * 9999 // 262142 - 1) * 262142 // 9999 + 2 if cgroups.mode.version == 2 else shares


async def test_all_pods_together_are_limited(cgroups, kubepods, build, journal):
    allocatable = build(rules())
    await allocatable.make_root()
    await allocatable.run()
    values = await cgroups.read(kubepods)
    assert values.cpu_shares == kept(cgroups, 3072)
    assert (values.memory_limit, values.pids_limit, values.cpuset) == (48 * MIB, 500, CPUS)
    assert messages(journal) == ["Updated Node Allocatable limit across pods"]


async def test_a_pod_cannot_use_what_is_reserved(hierarchy, cgroups, kubepods, build):
    await build(rules()).make_root()
    pod = kubepods.child("pod1")
    await cgroups.create(pod, CgroupResources())
    with python(HOG.format(size=56 * MIB)) as process:
        hierarchy.attach(cgroups.path(pod), process.pid)
        assert go(process) == ""
        assert process.wait(10) == -9


async def test_a_limit_below_what_pods_use_holds_later(hierarchy, cgroups, kubepods, build, clock, journal):
    if cgroups.mode is CgroupMode.UNIFIED:
        pytest.skip("only with cgroup version 1: version 2 takes such a limit, and kills")
    allocatable = build(rules())
    await cgroups.create(kubepods.child("pod1"), CgroupResources())
    with python(HOG.format(size=80 * MIB)) as process:
        hierarchy.attach(cgroups.path(kubepods.child("pod1")), process.pid)
        assert go(process) == "1\n"
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(allocatable.run())
            await clock.until_asleep()
            [failure] = messages(journal)
            assert failure.startswith(f"Failed to update Node Allocatable Limits {kubepods.quoted()}: ")
            assert f"unable to set memory limit to {48 * MIB} (current usage: " in failure
            assert process.poll() is None
            process.kill()
            process.wait(10)
            clock.advance(RETRY)
    assert (await cgroups.read(kubepods)).memory_limit == 48 * MIB
    assert messages(journal)[1:] == ["Updated Node Allocatable limit across pods"]


async def test_reserved_cgroups_are_limited_and_never_made(cgroups, top, build, journal):
    reserved = top.child("system")
    allocatable = build(rules("system-reserved", system_cgroup=cgroups.path(reserved)))
    with pytest.raises(NotEnforced, match=r"has some missing paths|No such file"):
        await allocatable.limit_reserved()
    assert not cgroups.seems_to_exist(reserved)
    await cgroups.create(reserved, CgroupResources())
    await allocatable.limit_reserved()
    values = await cgroups.read(reserved)
    assert (values.cpu_shares, values.memory_limit, values.cpuset) == (kept(cgroups, 1024), 16 * MIB, CPUS)
    assert messages(journal)[1:] == [f"Updated limits on system reserved cgroup {cgroups.path(reserved)}"]


async def test_only_the_cpu_of_a_compressible_reservation_is_limited(cgroups, top, build):
    reserved = top.child("system")
    await cgroups.create(reserved, CgroupResources(memory_limit=32 * MIB))
    await build(rules("system-reserved-compressible", system_cgroup=cgroups.path(reserved))).limit_reserved()
    values = await cgroups.read(reserved)
    assert (values.cpu_shares, values.memory_limit) == (kept(cgroups, 1024), 32 * MIB)


async def test_what_others_write_to_the_files_is_written_again(cgroups, kubepods, build):
    allocatable = build(rules())
    qos = QosCgroups(cgroups=cgroups, kubepods=kubepods, rules=QosRules(), root_limits=lambda: allocatable.enforced)
    await allocatable.make_root()
    await qos.start()
    await allocatable.run()
    await qos.update([])
    assert await qos.repair() == ()
    best_effort = kubepods.child("besteffort")
    await cgroups.update(best_effort, CgroupResources(cpu_shares=777))
    await cgroups.update(kubepods, CgroupResources(memory_limit=40 * MIB, pids_limit=7))
    await cgroups.destroy(kubepods.child("burstable"))
    repaired = {each.path: each for each in await qos.repair()}
    assert set(repaired) == {cgroups.path(kubepods), cgroups.path(best_effort), f"{cgroups.path(kubepods)}/burstable"}
    assert [each.name for each in repaired[cgroups.path(kubepods)].drifts] == ["memory limit", "process limit"]
    assert [str(each) for each in repaired[cgroups.path(best_effort)].drifts] == [
        f"CPU shares {kept(cgroups, 777)} instead of 2"
    ]
    assert repaired[f"{cgroups.path(kubepods)}/burstable"].was_removed
    values = await cgroups.read(kubepods)
    assert (values.memory_limit, values.pids_limit) == (48 * MIB, 500)
    assert (await cgroups.read(best_effort)).cpu_shares == 2
    assert cgroups.exists(kubepods.child("burstable"))
    assert await qos.repair() == ()


async def test_an_agent_goes_into_its_cgroup(cgroups, top, proc):
    path = f"{cgroups.path(top)}/agents_own"
    with python(STAY, path, str(proc)) as process:
        assert go(process) == "True False\n"
        assert process.stdout.readline() == "True False\n"
        assert places(process.pid) == {path}
        assert read(process.pid, "oom_score_adj") == "700\n"


async def test_processes_of_a_cgroup_are_moved_into_another(hierarchy, cgroups, top, members, clock, sleeper):
    # In place of the root cgroup, whose processes are not the test's.
    source, target = cgroups.path(top.child("source")), f"{cgroups.path(top)}/system_a"
    hierarchy.attach(source, sleeper.pid)
    own = places(os.getpid())
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        mover = SystemProcesses(processes=members, source=source, target=target, clock=clock)
        task = group.create_task(mover.run())
        await clock.until_asleep()
        task.cancel()
    assert places(sleeper.pid) == {target}
    assert await cgroups.pids(top.child("source")) == frozenset()
    assert places(os.getpid()) == own


async def test_a_process_keeps_the_cgroup_that_it_has_of_its_own(hierarchy, cgroups, top, members, sleeper):
    if cgroups.mode is CgroupMode.UNIFIED:
        pytest.skip("only with cgroup version 1: in version 2 a process is in one cgroup alone")
    source, target = cgroups.path(top.child("source")), cgroups.path(top.child("system"))
    own = cgroups.path(top.child("own"))
    hierarchy.attach(source, sleeper.pid)
    await cgroups.create(top.child("own"), CgroupResources())
    (hierarchy.directory("memory", own) / "cgroup.procs").write_text(str(sleeper.pid))
    assert await members.move(sleeper.pid, source=source, target=target)
    found = parse_process_cgroups(read(sleeper.pid, "cgroup"))
    assert (found["memory"], found["cpu"], found["pids"]) == (own, target, target)
