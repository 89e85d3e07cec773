"""Running containers are kept on their CPUs: after each change, and once in a period."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.cri.errors import CriError, CriNotFound
from klet.host.cpulist import parse_cpu_list
from klet.journal.memory import MemoryJournal
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, PodRuntimeStatus, RuntimeContainerState
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy
from klet.resources.cpu.reconciler import CpuReconciler
from klet.resources.cpu.state import CpuState, check_state
from klet.resources.cpu.topology import build_topology
from klet.testing.builders import make_pod, make_record
from klet.testing.loop import EPOCH, run_virtual
from klet.testing.machines import SMALL, list_cpus
from klet.wire import cri_v1_pb2 as cri
from klet.wire.codes import Code

UID = PodUID("uid-1")
PERIOD = timedelta(seconds=10)
POLICY = build_static_policy(build_topology(list_cpus(SMALL)), CpuPolicyOptions(), reserved=1, specific=frozenset({0}))


class Manager:
    """Has nothing to release; counts how often it was asked."""

    def __init__(self):
        self.passes = 0

    async def release_stale(self):
        self.passes += 1


class Runtime:
    """Notes who is moved where."""

    def __init__(self):
        self.moved = []
        self.error = None

    async def update_container_resources(self, request):
        if self.error is not None:
            raise self.error
        self.moved.append((request.container_id, request.linux.cpuset_cpus))
        return cri.UpdateContainerResourcesResponse()


class Pods:
    """One pod with these containers."""

    def __init__(self):
        self.states = {}

    def pods(self):
        records = [
            replace(make_record(make_pod(name), name), id=ContainerId(f"id-{name}"), state=state)
            for name, state in self.states.items()
        ]
        return {UID: PodRuntimeStatus(uid=UID, name="pod", namespace="default", containers=tuple(records))}


class Bench:
    """A reconciler, and what it works on."""

    def __init__(self):
        self.clock = LoopClock(epoch=EPOCH)
        self.board = CpuBoard(policy=POLICY, state=check_state(POLICY, CpuState()), lifts_quota=True)
        self.manager, self.runtime, self.pods = Manager(), Runtime(), Pods()
        self.journal = MemoryJournal(clock=self.clock)
        self.reconciler = CpuReconciler(
            manager=self.manager,
            board=self.board,
            pods=self.pods,
            runtime=self.runtime,
            recorder=self.journal,
            clock=self.clock,
            period=PERIOD,
        )

    def start(self, *names):
        self.pods.states |= dict.fromkeys(names, RuntimeContainerState.RUNNING)

    def give(self, container, cpus):
        self.board.put(self.board.state.with_container(UID, container, parse_cpu_list(cpus)))

    def findings(self):
        return [(str(cause.finding.decision), cause.finding.message) for cause in self.journal.all()]


def live(story):
    """Run a story beside the reconciler."""

    async def both():
        bench = Bench()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(bench.reconciler.run())
            await story(bench)
            task.cancel()

    run_virtual(both())


def test_a_pass_in_each_period():
    async def story(bench):
        await bench.clock.sleep(PERIOD * 3 + timedelta(seconds=1))
        assert bench.manager.passes == 4

    live(story)


def test_a_change_is_followed_at_once():
    async def story(bench):
        bench.start("main")
        await bench.clock.sleep(timedelta(seconds=1))
        bench.give("own", "2,6")
        await bench.clock.sleep(timedelta(seconds=1))
        assert bench.runtime.moved == [("id-main", "0-7"), ("id-main", "0-1,3-5,7")]
        assert bench.findings() == [("CpusChanged", "moved from CPUs 0-7 to 0-1,3-5,7: these are shared now")]

    live(story)


def test_a_container_that_was_created_where_it_belongs_is_left_alone():
    async def story(bench):
        bench.start("main")
        await bench.reconciler.before_start(make_pod("main"), "main", ContainerId("id-main"), frozenset(range(8)))
        await bench.clock.sleep(PERIOD * 2)
        assert bench.runtime.moved == []

    live(story)


def test_one_that_was_created_before_others_were_given_its_cpus_is_moved():
    async def story(bench):
        await bench.reconciler.before_start(make_pod("main"), "main", ContainerId("id-main"), frozenset(range(8)))
        bench.give("own", "2,6")
        bench.start("main")
        await bench.clock.sleep(PERIOD)
        assert bench.runtime.moved == [("id-main", "0-1,3-5,7")]

    live(story)


def test_what_is_known_of_containers_that_never_started_is_forgotten():
    async def story(bench):
        await bench.reconciler.before_start(make_pod("main"), "main", ContainerId("id-main"), frozenset(range(8)))
        await bench.clock.sleep(PERIOD * 3)
        bench.start("main")
        await bench.clock.sleep(PERIOD)
        assert bench.runtime.moved == [("id-main", "0-7")]

    live(story)


def test_a_failure_is_recorded_once_and_tried_again():
    async def story(bench):
        bench.start("main")
        bench.runtime.error = CriError(Code.UNKNOWN, "cgroup is busy")
        await bench.clock.sleep(PERIOD * 3)
        assert bench.findings() == [("CpusNotSet", "the container cannot be moved to CPUs 0-7: cgroup is busy")]
        bench.runtime.error = None
        await bench.clock.sleep(PERIOD)
        assert bench.runtime.moved == [("id-main", "0-7")]

    live(story)


def test_a_container_that_is_gone_meanwhile_is_no_failure():
    async def story(bench):
        bench.start("main")
        bench.runtime.error = CriNotFound(Code.NOT_FOUND, "no such container")
        await bench.clock.sleep(PERIOD)
        assert bench.findings() == []

    live(story)
