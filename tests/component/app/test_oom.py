"""Kills for memory, in the wired agent: what the kernel logs and counts becomes Events on the pod and on the Node."""

import asyncio
import fcntl
import os
from contextlib import aclosing, closing
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.app.opening import open_kernel_log
from klet.host.errors import FileError
from klet.host.kmsg import KernelLog, KernelLogRefused, KernelMessage
from klet.model.pods import PodUID
from klet.model.reasons import EventType
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual

SECOND = timedelta(seconds=1)
UID = PodUID("0a1b2c3d-1111-2222-3333-444455556666")
POD = f"/kubepods/burstable/pod{UID}"


class Log:
    """The kernel's log, as a test writes it."""

    def __init__(self):
        self._messages = asyncio.Queue()

    async def messages(self):
        while True:
            yield await self._messages.get()

    def say(self, *texts):
        for text in texts:
            self._messages.put_nowait(
                KernelMessage(level=3, facility=0, sequence=1, since_boot=timedelta(seconds=1), text=text)
            )


class Machine:
    """A node with one pod of two containers, and its kernel."""

    def __init__(self):
        runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
        self.log = Log()
        self.node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, kernel_log=self.log)
        self.clock, self.counts = self.node.clock, self.node.oom_counts

    def run(self, story):
        async def run():
            wanted = DrivenPodSource()
            async with self.node.run_agent(wanted) as running:
                wanted.add(make_pod("main", "other", uid=UID, name="web", source="file"))
                while (status := running.agent.statuses.get(UID)) is None or status.phase != "Running":
                    await self.clock.sleep(SECOND / 100)
                self.running = running
                await story(self)

        run_virtual(run())

    def id_of(self, name):
        return next(each.id for each in self.node.runtime.containers() if each.config.metadata.name == name)

    def kill(self, *, pid=42, name="main", limited="", cgroup=None, limit="65536", count=True, process="stress"):
        """A process dies at the limit of its container, or of the cgroup that is given."""
        own = cgroup if cgroup is not None else f"{POD}/{self.id_of(name)}"
        self.log.say(
            f"{process} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            f"memory: usage {limit}kB, limit {limit}kB, failcnt 1",
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={limited or own},"
            f"task_memcg={own},task={process},pid={pid},uid=1000",
        )
        self.die(pid=pid, name=name if count else "", process=process)

    def die(self, *, pid=42, name="", process="stress"):
        """Only the last line, as the kernel writes it in a series."""
        if name:
            id_ = self.id_of(name)
            self.counts.kills[id_] = self.counts.kills.get(id_, 0) + 1
        self.log.say(
            f"Memory cgroup out of memory: Killed process {pid} ({process}) total-vm:1kB, UID:1000 pgtables:1kB"
        )

    def system(self, pid=77, cgroup="/system.slice/x", process="stress"):
        self.log.say(
            f"{process} invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0",
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            f"task_memcg={cgroup},task={process},pid={pid},uid=0",
            f"Out of memory: Killed process {pid} ({process}) total-vm:100kB, anon-rss:50kB, UID:0 pgtables:1kB",
        )

    def recorded(self, decision="OOMKilling"):
        return [cause.finding for cause in self.node.journal.all() if cause.finding.decision == decision]


def test_a_process_that_dies_at_its_containers_limit_is_an_event_on_the_pod_that_names_both():
    async def story(machine):
        machine.kill()
        await machine.clock.sleep(SECOND)
        (found,) = machine.recorded()
        assert found.message == (
            'Memory cgroup out of memory: the kernel killed process 42 (stress) of container "main", '
            "which reached its memory limit of 64Mi"
        )
        subject = found.subject
        assert (subject.name, subject.uid, subject.container) == ("web", UID, "main")
        assert found.decision.event_type is EventType.WARNING
        named = {"process": "stress", "pid": 42, "uid": 1000, "constraint": "CONSTRAINT_MEMCG"}
        assert found.measurements == {"kills": 1, "limit": 64 << 20, **named}
        # The container goes on: its status is as it was.
        assert machine.running.agent.statuses.get(UID).phase == "Running"
        assert machine.recorded("SystemOOM") == []

    Machine().run(story)


@pytest.mark.parametrize(
    ("cgroup", "limited", "expected"),
    [
        pytest.param("{pod}/{id}", "{pod}", "as the pod reached its memory limit of 64Mi", id="the limit of the pod"),
        pytest.param(
            "{pod}/{id}", "/kubepods", "as the cgroup /kubepods reached its memory limit of 64Mi",
            id="the limit of all pods",
        ),
        pytest.param(
            "{pod}/{id}/nested", "{pod}/{id}/nested", "which reached its memory limit of 64Mi",
            id="a cgroup that the container made",
        ),
        pytest.param(
            "/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-{id}.scope",
            "/kubepods.slice/kubepods-pod{slice}.slice",
            "as the pod reached its memory limit of 64Mi",
            id="the cgroups of systemd",
        ),
    ],
)  # fmt: skip
def test_whose_limit_it_was(cgroup, limited, expected):
    async def story(machine):
        names = {"pod": POD, "id": machine.id_of("main"), "slice": UID.replace("-", "_")}
        machine.kill(cgroup=cgroup.format(**names), limited=limited.format(**names))
        await machine.clock.sleep(SECOND)
        (found,) = machine.recorded()
        assert found.message.endswith(f'of container "main", {expected}')

    Machine().run(story)


def test_a_machine_without_memory_is_upstreams_event_on_the_node_and_one_on_the_pod():
    async def story(machine):
        machine.system(pid=77)
        machine.system(pid=78, cgroup=f"{POD}/{machine.id_of('main')}")
        await machine.clock.sleep(SECOND)
        assert [(each.message, each.subject.uid) for each in machine.recorded("SystemOOM")] == [
            ("System OOM encountered, victim process: stress, pid: 77", ""),
            ("System OOM encountered, victim process: stress, pid: 78", ""),
        ]
        (found,) = machine.recorded()
        assert found.message == (
            'Node out of memory: the kernel killed process 78 (stress) of container "main", '
            "as the whole node was out of memory"
        )

    Machine().run(story)


def test_what_dies_outside_of_pods_at_its_own_limit_is_no_event():
    async def story(machine):
        machine.kill(cgroup="/system.slice/cron.service", count=False)
        await machine.clock.sleep(SECOND)
        assert machine.recorded() == machine.recorded("SystemOOM") == []

    Machine().run(story)


def test_a_thousand_kills_a_second_are_a_few_records_with_their_number():
    async def story(machine):
        machine.kill(pid=1)
        for second in range(30):
            for number in range(1000):
                machine.die(pid=second * 1000 + number + 2, name="main")
            await machine.clock.sleep(SECOND)
        await machine.clock.sleep(20 * SECOND)
        found = machine.recorded()
        assert len(found) <= 5
        assert sum(each.measurements["kills"] for each in found) == 30_001
        # Nobody counts between kills.
        reads = machine.counts.reads
        assert reads <= 70
        await machine.clock.sleep(3600 * SECOND)
        assert machine.counts.reads == reads

    Machine().run(story)


def test_a_second_container_does_not_wait_for_the_first():
    async def story(machine):
        machine.kill(pid=1)
        await machine.clock.sleep(SECOND)
        machine.kill(pid=2)
        machine.kill(pid=3, name="other")
        await machine.clock.sleep(2 * SECOND)
        assert [each.subject.container for each in machine.recorded()] == ["main", "other"]
        await machine.clock.sleep(10 * SECOND)
        assert [each.measurements["pid"] for each in machine.recorded()] == [1, 3, 2]

    Machine().run(story)


def test_a_kill_of_which_the_kernel_left_out_the_cgroup_is_found_by_the_counter():
    async def story(machine):
        machine.die(pid=5, name="other")
        await machine.clock.sleep(SECOND)
        (found,) = machine.recorded()
        assert found.message == (
            'Memory cgroup out of memory: the kernel killed process 5 (stress) of container "other", '
            "which reached a memory limit"
        )
        # In two containers at once: which process was whose is not known.
        await machine.clock.sleep(15 * SECOND)
        machine.die(pid=6, name="other")
        machine.die(pid=7, name="main")
        await machine.clock.sleep(SECOND)
        assert {each.message for each in machine.recorded()[1:]} == {
            'Out of memory: the kernel killed a process of container "other"',
            'Out of memory: the kernel killed a process of container "main"',
        }

    Machine().run(story)


def test_a_machine_that_thrashes_does_not_flood_the_events_of_the_node():
    async def story(machine):
        for number in range(1000):
            machine.system(pid=number + 1)
        await machine.clock.sleep(SECOND)
        assert len(machine.recorded("SystemOOM")) == 20

    Machine().run(story)


def test_kills_of_a_previous_run_are_no_news():
    machine = Machine()

    async def first(machine):
        machine.kill()
        await machine.clock.sleep(SECOND)

    machine.run(first)
    assert len(machine.recorded()) == 1
    machine.log = Log()
    machine.node.kernel_log = machine.log

    async def second(machine):
        await machine.clock.sleep(5 * SECOND)
        machine.kill(pid=9, name="other")
        await machine.clock.sleep(SECOND)
        assert [each.subject.container for each in machine.recorded()] == ["main", "other"]

    machine.run(second)


def test_a_process_chooses_its_name_but_not_what_a_terminal_does():
    async def story(machine):
        machine.kill(process="\x1b[2J\u202e" + "x" * 200)
        await machine.clock.sleep(SECOND)
        (found,) = machine.recorded()
        assert "\x1b" not in found.message
        assert len(found.message) < 300

    Machine().run(story)


class TestKernelLog:
    """The real reader, fed by a pipe that keeps records apart as the kernel does."""

    @pytest.fixture
    def pipe(self, tmp_path):
        path = tmp_path / "kmsg"
        os.mkfifo(path)
        # A reader first: a pipe without one cannot be opened for writing.
        log = KernelLog.open(path)
        writer = os.open(path, os.O_WRONLY)
        fcntl.fcntl(writer, fcntl.F_SETFL, os.O_DIRECT)
        with closing(log):
            yield log, writer
        os.close(writer)

    async def test_records_come_as_they_are_written_and_a_damaged_one_is_left_out(self, pipe):
        log, writer = pipe
        for record in ("3,1,5000000,-;one\n SUBSYSTEM=x\n", "nonsense", "3,2,5000000,-;two\n"):
            os.write(writer, record.encode())
        async with asyncio.timeout(10), aclosing(log.messages()) as messages:
            assert [(await anext(messages)).text for _ in range(2)] == ["one", "two"]

    async def test_a_flood_leaves_others_their_turns(self, pipe):
        log, writer = pipe
        os.set_blocking(writer, False)
        turns = written = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.timeout(30), asyncio.TaskGroup() as group, aclosing(log.messages()) as messages:
            task = group.create_task(other())
            for _ in range(1000):
                try:
                    while True:
                        os.write(writer, b"3,1,1,-;x\n")
                        written += 1
                except BlockingIOError:
                    pass
                await anext(messages)
            task.cancel()
        assert turns >= 10

    def test_where_it_cannot_be_opened(self, tmp_path):
        missing = tmp_path / "kmsg"
        with pytest.raises(FileError):
            open_kernel_log(in_user_namespace=False, is_optional=True, path=missing)
        with pytest.raises(KernelLogRefused, match="KubeletInUserNamespace"):
            open_kernel_log(in_user_namespace=True, is_optional=False, path=missing)
        assert open_kernel_log(in_user_namespace=True, is_optional=True, path=missing) is None
