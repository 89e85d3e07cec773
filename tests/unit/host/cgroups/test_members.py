"""Which processes may be moved, on a /proc that a test made: no process of this machine is touched."""

import os

import pytest

from klet.aio.threads import Threads
from klet.host.cgroups.members import CgroupMembers
from klet.host.errors import CgroupError
from klet.testing.cgroups import MemoryHierarchy

OWN = os.getpid()


class FakeProc:
    """A /proc with the files that are read."""

    def __init__(self, directory):
        self.directory = directory

    def add(self, pid, *, exe="/bin/sh", namespace="pid:[1]", cgroup="/", score=0):
        place = self.directory / str(pid)
        (place / "ns").mkdir(parents=True)
        (place / "ns/pid").symlink_to(namespace)
        if exe:
            (place / "exe").symlink_to(exe)
        (place / "cgroup").write_text(f"0::{cgroup}\n")
        (place / "oom_score_adj").write_text(f"{score}\n")
        return place


@pytest.fixture
def proc(tmp_path):
    made = FakeProc(tmp_path)
    made.add(1)
    return made


@pytest.fixture
def hierarchy():
    return MemoryHierarchy()


@pytest.fixture
def members(proc, hierarchy):
    threads = Threads(limit=1)
    yield CgroupMembers(hierarchy=hierarchy, threads=threads, proc=proc.directory)
    threads.close()


async def test_only_programs_of_the_machine_may_be_moved(members, proc, hierarchy):
    proc.add(10)
    proc.add(11, exe="")
    proc.add(12, namespace="pid:[2]")
    hierarchy.processes = {"/": {1, 10, 11, 12, 13}, "/below": {14}}
    assert await members.list_movable("/") == {10}


async def test_a_process_is_moved(members, proc, hierarchy):
    proc.add(10)
    hierarchy.processes = {"/": {10}}
    assert await members.move(10, source="/", target="/system")
    assert hierarchy.processes == {"/": set(), "/system": {10}}


@pytest.mark.parametrize(
    ("process", "place"),
    [
        pytest.param({}, "/kubepods/pod1", id="one that is in another cgroup by now"),
        pytest.param({"exe": ""}, "/", id="a thread of the kernel"),
        pytest.param({"namespace": "pid:[2]"}, "/", id="one of a container"),
        pytest.param(None, "/", id="one that is gone"),
    ],
)
async def test_a_number_that_is_not_that_process_any_more_is_left_alone(members, proc, hierarchy, process, place):
    if process is not None:
        proc.add(10, **process)
    hierarchy.processes = {"/": set()} | {place: {10}}
    before = {path: set(pids) for path, pids in hierarchy.processes.items()}
    assert not await members.move(10, source="/", target="/system")
    assert hierarchy.processes == before


async def test_process_1_is_never_moved(members, hierarchy):
    hierarchy.processes = {"/": {1}}
    assert not await members.move(1, source="/", target="/system")
    assert hierarchy.processes == {"/": {1}}


async def test_the_agent_goes_into_its_cgroup_once(members, proc, hierarchy):
    place = proc.add(OWN, cgroup="/user.slice")
    assert await members.place_agent("/agent")
    assert hierarchy.processes["/agent"] == {OWN}
    (place / "cgroup").write_text("0::/agent\n")
    hierarchy.processes.clear()
    assert not await members.place_agent("/agent")
    assert hierarchy.processes == {}


async def test_the_oom_score_is_written_if_it_is_another(members, proc):
    file = proc.add(OWN, score=0) / "oom_score_adj"
    assert await members.set_agent_oom_score(-999)
    assert file.read_text() == "-999"
    assert not await members.set_agent_oom_score(-999)


async def test_an_agent_in_a_container_is_left_where_it_is(members, proc, hierarchy):
    file = proc.add(OWN, namespace="pid:[2]", score=5) / "oom_score_adj"
    assert not await members.place_agent("/agent")
    assert not await members.set_agent_oom_score(-999)
    assert (hierarchy.processes, file.read_text()) == ({}, "5\n")


async def test_a_file_that_is_not_there_is_an_error(members, proc):
    (proc.add(OWN) / "oom_score_adj").unlink()
    with pytest.raises(CgroupError, match="oom_score_adj"):
        await members.set_agent_oom_score(1)
