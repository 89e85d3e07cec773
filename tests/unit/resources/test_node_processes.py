"""The agent in its cgroup, and the machine's processes in theirs: in virtual time, on processes that a test names."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from klet.host.errors import CgroupError
from klet.resources.node_processes import EVERY, ROUNDS, SELDOM, AgentPlace, SystemProcesses
from klet.testing.clock import ManualClock


class OneProcess:
    """The agent: where it is, and its OOM score."""

    def __init__(self):
        self.cgroup, self.score, self.looks = "/user.slice", 0, 0
        self.refuses = ""

    async def place_agent(self, path):
        self.looks += 1
        before, self.cgroup = self.cgroup, path
        return before != path

    async def set_agent_oom_score(self, score):
        if self.refuses:
            raise CgroupError(self.refuses)
        before, self.score = self.score, score
        return before != score


class ManyProcesses:
    """Processes by cgroup. Each of `restless` starts another one when it is moved; `stubborn` ones are not moved."""

    def __init__(self, *pids):
        self.cgroups = {"/": set(pids), "/system": set()}
        self.restless, self.stubborn = set(), set()
        self.error = ""

    async def list_movable(self, path):
        if self.error:
            raise CgroupError(self.error)
        return frozenset(self.cgroups[path])

    async def move(self, pid, *, source, target):
        if pid in self.stubborn:
            raise CgroupError("no such process")
        self.cgroups[source].remove(pid)
        self.cgroups[target].add(pid)
        if pid in self.restless:
            self.cgroups[source].add(pid + 100)
            self.restless.add(pid + 100)
        return True


@asynccontextmanager
async def running(part, clock):
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(part.run())
        await clock.until_asleep()
        yield
        task.cancel()


def place(process, clock, *, cgroup=""):
    return AgentPlace(process=process, cgroup=cgroup, oom_score=-999, clock=clock)


def moving(processes, clock):
    return SystemProcesses(processes=processes, source="/", target="/system", clock=clock)


async def test_the_agent_is_moved_and_kept_there():
    process, clock = OneProcess(), ManualClock()
    async with running(place(process, clock, cgroup="/agent"), clock):
        assert (process.cgroup, process.score) == ("/agent", -999)
        process.cgroup = "/elsewhere"
        process.score = 7
        clock.advance(EVERY)
        await clock.until_asleep()
        assert (process.cgroup, process.score) == ("/agent", -999)
    assert timedelta(minutes=1) == EVERY


async def test_without_a_cgroup_only_the_oom_score_is_looked_at_every_five_minutes():
    process, clock = OneProcess(), ManualClock()
    async with running(place(process, clock), clock):
        assert (process.cgroup, process.score, process.looks) == ("/user.slice", -999, 0)
        assert clock.next_wake() == clock.now() + SELDOM == clock.now() + timedelta(minutes=5)


async def test_what_cannot_be_had_is_logged_once(caplog):
    process, clock = OneProcess(), ManualClock()
    process.refuses = "cannot write /proc/1/oom_score_adj: Permission denied"
    caplog.set_level("INFO")
    async with running(place(process, clock, cgroup="/agent"), clock):
        for _ in range(3):
            clock.advance(EVERY)
            await clock.until_asleep()
    found = [record.error for record in caplog.records if record.message.startswith("Failed")]
    assert found == [process.refuses]
    assert process.cgroup == "/agent", "the one does not keep the other from being done"


async def test_processes_without_a_cgroup_are_moved_every_minute():
    processes, clock = ManyProcesses(10, 11), ManualClock()
    async with running(moving(processes, clock), clock):
        assert processes.cgroups == {"/": set(), "/system": {10, 11}}
        processes.cgroups["/"].add(12)
        clock.advance(EVERY)
        await clock.until_asleep()
        assert processes.cgroups == {"/": set(), "/system": {10, 11, 12}}


async def test_those_that_are_started_meanwhile_are_moved_too_but_not_without_end():
    processes, clock = ManyProcesses(10), ManualClock()
    processes.restless = {10}
    async with running(moving(processes, clock), clock):
        assert len(processes.cgroups["/system"]) == ROUNDS
        assert len(processes.cgroups["/"]) == 1


async def test_one_that_cannot_be_moved_holds_up_no_other_and_is_logged_once(caplog):
    processes, clock = ManyProcesses(10, 11), ManualClock()
    processes.stubborn = {10}
    async with running(moving(processes, clock), clock):
        clock.advance(EVERY)
        await clock.until_asleep()
        assert processes.cgroups == {"/": {10}, "/system": {11}}
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.error == 'failed to move PID 10 into the system container "/system": no such process'


async def test_a_list_that_cannot_be_read_is_read_again(caplog):
    processes, clock = ManyProcesses(10), ManualClock()
    processes.error = "the cgroup controller devices is not mounted"
    async with running(moving(processes, clock), clock):
        processes.error = ""
        clock.advance(EVERY)
        await clock.until_asleep()
        assert processes.cgroups["/system"] == {10}
    assert [record.error for record in caplog.records] == [
        "failed to list PIDs for root: the cgroup controller devices is not mounted"
    ]
