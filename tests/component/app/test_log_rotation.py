"""The log manager in the wired agent, in virtual time: which logs are rotated, and what happens when that fails."""

from datetime import timedelta

from klet.aio.clock import LoopClock
from klet.cri.errors import Code
from klet.logs.line import parse_cri_line
from klet.logs.rotation import LogRotationSettings
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.fake_host import MemoryFiles
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault
from klet.testing.fake_runtime.faults import Fail, HalfDone, Hang
from klet.testing.loop import EPOCH, run_virtual

SECOND = timedelta(seconds=1)
ROTATION = LogRotationSettings(max_size=1000, max_files=4)


class Machine:
    """A node with pods whose containers write numbered lines."""

    def __init__(self, rotation=ROTATION, *, pods=1):
        files = MemoryFiles()
        runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),), sink=files.sink)
        self.node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, files=files, log_rotation=rotation)
        self.runtime, self.clock = runtime, self.node.clock
        self._pods = pods
        self._next = 0

    def run(self, story):
        async def run():
            wanted = DrivenPodSource()
            async with self.node.run_agent(wanted) as running:
                uids = [PodUID(f"uid-{number}") for number in range(self._pods)]
                for uid in uids:
                    wanted.add(make_pod("main", uid=uid, name=f"pod-{uid}", source="file"))
                while any((s := running.agent.statuses.get(uid)) is None or s.phase != "Running" for uid in uids):
                    await self.clock.sleep(SECOND / 100)
                await story(self)

        run_virtual(run())

    @property
    def containers(self):
        return sorted(self.runtime.containers(), key=lambda each: each.log_path)

    def write(self, lines, container=0):
        for _ in range(lines):
            self.runtime.write_log(self.containers[container].id, f"line {self._next}")
            self._next += 1

    def files(self, container=0):
        log = self.containers[container].log_path
        paths = sorted(path for path in self.node.files.sink.paths() if path.startswith(log))
        return [path.removeprefix(log) for path in paths]

    def lines(self, container=0):
        """Every line in every file, oldest file first."""
        log = self.containers[container].log_path
        names = sorted(self.files(container), key=lambda name: name or "~")
        data = b"".join(self.node.files.sink.read(log + name) for name in names)
        return [parse_cri_line(line).content.decode().strip() for line in data.splitlines()]

    def calls(self, rpc):
        return sum(call.rpc == rpc for call in self.runtime.calls)

    def failures(self):
        return [c.finding for c in self.node.journal.all() if c.finding.decision == "LogNotRotated"]


def test_a_log_that_is_too_large_gets_a_new_file_and_no_line_is_lost():
    async def story(machine):
        for _ in range(3):
            machine.write(50)
            await machine.clock.sleep(10 * SECOND)
        names = machine.files()
        assert len(names) == 4
        assert names[0] == ""
        assert [name.endswith(".gz") for name in names[1:]] == [True, True, False]
        assert all(name.startswith(".2") and len(name.removesuffix(".gz")) == 16 for name in names[1:])
        assert machine.lines() == [f"line {number}" for number in range(150)]
        machine.write(50)
        await machine.clock.sleep(10 * SECOND)
        assert len(machine.files()) == 4
        assert machine.lines() == [f"line {number}" for number in range(50, 200)]

    Machine().run(story)


def test_small_logs_and_logs_of_ended_containers_stay_and_cost_no_call():
    async def story(machine):
        machine.write(2)
        machine.write(100, container=1)
        machine.runtime.end_container(machine.containers[1].id, 0)
        await machine.clock.sleep(5 * SECOND)
        before = len(machine.runtime.calls)
        await machine.clock.sleep(20 * SECOND)
        names = {call.rpc for call in machine.runtime.calls[before:]}
        assert "ReopenContainerLog" not in names
        assert machine.files(0) == [""]
        assert machine.files(1)[0] == ""

    Machine(pods=2).run(story)


def test_rotation_is_switched_off_by_a_negative_size():
    async def story(machine):
        machine.write(500)
        await machine.clock.sleep(60 * SECOND)
        assert machine.files() == [""]

    Machine(LogRotationSettings(max_size=-1)).run(story)


def test_a_log_that_the_runtime_does_not_reopen_keeps_its_name_and_is_rotated_later():
    async def story(machine):
        fault = machine.runtime.faults.add(Fault("ReopenContainerLog", Fail(Code.UNKNOWN, "not now"), count=None))
        machine.write(100)
        await machine.clock.sleep(45 * SECOND)
        assert machine.files() == [""]
        assert machine.calls("ReopenContainerLog") >= 4
        (failure,) = machine.failures()
        assert "failed to reopen container log" in failure.message
        assert "not now" in failure.message
        assert (failure.subject.container, failure.next) == ("main", "try again every 10 s")
        fault.release()
        await machine.clock.sleep(11 * SECOND)
        assert len(machine.files()) == 2
        assert machine.lines() == [f"line {number}" for number in range(100)]

    Machine().run(story)


def test_a_runtime_that_reopened_the_log_but_did_not_say_so_loses_no_line():
    async def story(machine):
        machine.runtime.faults.add(Fault("ReopenContainerLog", HalfDone(Code.UNAVAILABLE, "gone"), count=1))
        machine.write(100)
        await machine.clock.sleep(11 * SECOND)
        machine.write(5)
        assert len(machine.files()) == 2
        assert machine.lines() == [f"line {number}" for number in range(105)]

    Machine().run(story)


def test_the_missing_log_of_a_running_container_is_opened_again():
    async def story(machine):
        machine.write(1)
        machine.node.files.sink.remove(machine.containers[0].log_path)
        await machine.clock.sleep(11 * SECOND)
        machine.write(1)
        assert machine.lines() == ["line 1"]
        assert machine.failures() == []

    Machine().run(story)


def test_one_rotation_that_hangs_holds_up_others_only_if_there_is_one_worker():
    for workers, rotated in ((1, 1), (2, 2)):

        async def story(machine, rotated=rotated):
            machine.runtime.faults.add(Fault("ReopenContainerLog", Hang(), count=1))
            machine.write(100, container=0)
            await machine.clock.sleep(11 * SECOND)
            machine.write(100, container=1)
            await machine.clock.sleep(11 * SECOND)
            assert len(machine.files(1)) == rotated

        Machine(LogRotationSettings(max_size=1000, workers=workers), pods=2).run(story)


def test_the_interval_is_the_configured_one():
    async def story(machine):
        machine.write(100)
        await machine.clock.sleep(25 * SECOND)
        assert len(machine.files()) == 1
        await machine.clock.sleep(10 * SECOND)
        assert len(machine.files()) == 2

    Machine(LogRotationSettings(max_size=1000, interval=30 * SECOND)).run(story)
