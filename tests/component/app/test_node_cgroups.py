"""The cgroups of the node in the wired agent: on cgroups in memory, the fake runtime and virtual time."""

import os
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.aio.threads import Threads
from klet.api.quantity import Quantity
from klet.app.cgroup_opening import open_cgroups
from klet.app.cgroup_settings import NodeCgroupSettings
from klet.app.metrics import open_metrics
from klet.app.node import NodeSpecification, build_node
from klet.cri.metrics import register_runtime_calls
from klet.host.cgroups.members import CgroupMembers
from klet.host.cgroups.resources import CgroupResources
from klet.model.pods import PodUID
from klet.model.reasons import EventType
from klet.resources.cgroup_values import QosRules
from klet.resources.node_allocatable import NotEnforced
from klet.resources.node_values import Enforcement, NodeAllocatableRules
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.node import running, simulated_settings
from klet.testing.builders import IMAGE, make_container, make_pod, with_resources
from klet.testing.cgroups import MemoryHierarchy
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
MINUTE = timedelta(minutes=1)
GIB = 1 << 30
ROOT, BURSTABLE = "/kubepods", "/kubepods/burstable"
PAGES = {2 << 20: 1 << 62}
CHANGED = "somebody else had changed the cgroup"
CAPACITY = {"cpu": "4", "memory": "8Gi", "pid": "1000", "hugepages-2Mi": "0"}
LIMITS = CgroupResources(cpu_shares=3072, memory_limit=7 * GIB, pids_limit=1000, cpuset="0-3", hugepages=PAGES)
POD = make_pod(with_resources(make_container("c"), requests={"cpu": "500m"}), uid=UID, source="file")


def amounts(given):
    return {name: Quantity.parse(text) for name, text in given.items()}


def allocatable(*levels: str) -> NodeAllocatableRules:
    return NodeAllocatableRules(
        capacity=amounts(CAPACITY),
        system_reserved=amounts({"cpu": "1", "memory": "1Gi"}),
        enforced=frozenset(Enforcement(level) for level in levels),
        system_cgroup="/system",
        cpus="0-3",
    )


class NodeOnCgroups:
    """A simulated node whose cgroups are those of the agent itself, above a hierarchy in memory."""

    def __init__(self, proc, *levels: str, **settings) -> None:
        self.clock = LoopClock(epoch=EPOCH)
        self.hierarchy = MemoryHierarchy()
        self.proc = proc
        self.settings = NodeCgroupSettings(allocatable=allocatable(*(levels or ("pods",))), **settings)
        self.wanted = DrivenPodSource()
        self._machine = SimulatedNode(
            clock=self.clock, runtime=FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
        )

    @property
    def journal(self):
        return self._machine.journal

    @asynccontextmanager
    async def run_agent(self):
        metrics = open_metrics(architecture="amd64")
        threads = Threads(limit=1)
        settings = replace(simulated_settings(8), node_cgroups=self.settings, qos=QosRules(hugepage_sizes=tuple(PAGES)))
        opened = open_cgroups(
            settings,
            self.hierarchy,
            members=CgroupMembers(hierarchy=self.hierarchy, threads=threads, proc=self.proc),
            threads=threads,
            recorder=self.journal,
            registry=metrics.agent,
            clock=self.clock,
        )
        calls = register_runtime_calls(metrics.agent)
        try:
            async with run_in_process(self._machine.runtime, clock=self.clock, metrics=calls) as client:
                ports = self._machine.build_ports(client, self.wanted, seed=0, metrics=metrics)
                ports = replace(
                    ports,
                    cgroups=opened.pods,
                    qos=opened.qos,
                    prepare_runtime=opened.prepare,
                    cgroup_parts=opened.parts,
                )
                node = build_node(NodeSpecification(settings=settings, ports=ports))
                async with running(node.parts):
                    yield node.agent
        finally:
            threads.close()

    async def until(self, condition: Callable[[], bool], *, within: timedelta = MINUTE) -> None:
        give_up = self.clock.now() + within
        while not condition():
            if self.clock.now() > give_up:
                pytest.fail(f"not within {within}: {self.hierarchy.cgroups}\n{self.recorded()}")
            await self.clock.sleep(timedelta(milliseconds=10))

    def recorded(self, *decisions: str) -> list[tuple[EventType | None, str]]:
        found = (cause.finding for cause in self.journal.all())
        return [(each.decision.event_type, each.message) for each in found if each.decision in decisions]


@pytest.fixture
def proc(tmp_path):
    """A /proc with this process and process 1."""
    for pid in (1, os.getpid()):
        place = tmp_path / str(pid)
        (place / "ns").mkdir(parents=True)
        (place / "ns/pid").symlink_to("pid:[1]")
        (place / "exe").symlink_to("/bin/sh")
        (place / "cgroup").write_text("0::/\n")
        (place / "oom_score_adj").write_text("0\n")
    return tmp_path


def test_all_pods_together_are_limited_and_that_is_an_event(proc):
    node = NodeOnCgroups(proc)
    node.hierarchy.cgroups[ROOT] = CgroupResources(memory_limit=GIB, cpu_shares=2)

    async def story():
        async with node.run_agent():
            await node.until(lambda: node.hierarchy.cgroups[ROOT] == LIMITS)
            assert node.recorded("NodeAllocatableEnforced") == [
                (EventType.NORMAL, "Updated Node Allocatable limit across pods")
            ]

    run_virtual(story())


def test_pods_that_use_more_are_limited_once_they_use_less(proc):
    node = NodeOnCgroups(proc)
    node.hierarchy.cgroups[ROOT] = CgroupResources()
    node.hierarchy.refuses[ROOT] = "unable to set memory limit to 7516192768 (current usage: 9, peak usage: 9)"

    async def story():
        async with node.run_agent():
            node.wanted.add(POD)
            await node.clock.sleep(2.5 * MINUTE)
            assert len(node.recorded("FailedNodeAllocatableEnforcement")) == 3
            node.hierarchy.refuses.clear()
            await node.until(lambda: node.hierarchy.cgroups[ROOT] == LIMITS)
            [event] = node.recorded("NodeAllocatableEnforced")
            assert event[0] is EventType.NORMAL

    run_virtual(story())


def test_a_reserved_cgroup_that_is_not_there_ends_the_agent(proc):
    node = NodeOnCgroups(proc, "pods", "system-reserved")

    async def story():
        with pytest.raises(ExceptionGroup) as caught:
            async with node.run_agent():
                await node.clock.sleep(MINUTE)
        [error] = caught.value.exceptions
        assert isinstance(error, NotEnforced)
        assert "/system" not in node.hierarchy.cgroups
        assert node.recorded("FailedNodeAllocatableEnforcement") == [(EventType.WARNING, str(error))]

    run_virtual(story())


def test_reserved_cgroups_are_limited_before_pods_start(proc):
    node = NodeOnCgroups(proc, "pods", "system-reserved")
    node.hierarchy.cgroups["/system"] = CgroupResources()

    async def story():
        async with node.run_agent():
            await node.until(lambda: ROOT in node.hierarchy.cgroups)
            await node.until(lambda: node.hierarchy.cgroups["/system"].memory_limit == GIB)
            expected = CgroupResources(cpu_shares=1024, memory_limit=GIB, cpuset="0-3")
            assert node.hierarchy.cgroups["/system"] == expected

    run_virtual(story())


def test_what_somebody_else_changes_is_written_again_within_a_minute(proc):
    node = NodeOnCgroups(proc)

    async def story():
        async with node.run_agent() as agent:
            node.wanted.add(POD)
            await node.until(lambda: (status := agent.statuses.get(UID)) is not None and status.phase == "Running")
            assert node.hierarchy.cgroups[BURSTABLE].cpu_shares == 512
            await node.clock.sleep(2 * MINUTE)
            assert node.recorded("QosCgroupRepaired") == []
            node.hierarchy.cgroups[BURSTABLE] = CgroupResources(cpu_shares=2)
            node.hierarchy.cgroups[ROOT] = replace(LIMITS, memory_limit=1 << 20)
            await node.clock.sleep(MINUTE)
            assert node.hierarchy.cgroups[BURSTABLE].cpu_shares == 512
            assert node.hierarchy.cgroups[ROOT] == LIMITS
            assert [message for _, message in node.recorded("QosCgroupRepaired")] == [
                f"{CHANGED} {ROOT}: memory limit 1048576 instead of 7516192768; it was written again",
                f"{CHANGED} {BURSTABLE}: CPU shares 2 instead of 512; it was written again",
            ]

    run_virtual(story())


def test_shares_of_pods_that_went_while_no_agent_ran_are_given_back(proc):
    node = NodeOnCgroups(proc)
    node.hierarchy.cgroups |= {ROOT: LIMITS, BURSTABLE: CgroupResources(cpu_shares=4096, hugepages=PAGES)}

    async def story():
        async with node.run_agent():
            await node.until(lambda: node.hierarchy.cgroups[BURSTABLE].cpu_shares == 2, within=2 * MINUTE)

    run_virtual(story())


def test_the_agent_and_the_machines_processes_are_where_they_should_be(proc):
    node = NodeOnCgroups(proc, agent="agent.slice/klet", system="/system")
    other = proc / "12345"
    (other / "ns").mkdir(parents=True)
    (other / "ns/pid").symlink_to("pid:[1]")
    (other / "exe").symlink_to("/bin/sh")
    node.hierarchy.processes = {"/": {1, 12345}}

    async def story():
        async with node.run_agent():
            await node.until(lambda: os.getpid() in node.hierarchy.processes.get("/agent.slice/klet", set()))
            await node.until(lambda: node.hierarchy.processes["/system"] == {12345})
            assert node.hierarchy.processes["/"] == {1}
            await node.until(lambda: (proc / str(os.getpid()) / "oom_score_adj").read_text() == "-999")

    run_virtual(story())


class KilledAgent(BaseException):
    """The agent is gone."""


class KillingHierarchy(MemoryHierarchy):
    """Counts what an agent changes, and ends it before the change of a number."""

    def __init__(self) -> None:
        super().__init__()
        self.cgroups["/system"] = CgroupResources()
        self.changes = 0
        self.killed_before = 0

    def create(self, path, resources):
        self._count()
        super().create(path, resources)

    def write(self, path, resources):
        self._count()
        super().write(path, resources)

    def _count(self) -> None:
        self.changes += 1
        if self.changes == self.killed_before:
            raise KilledAgent


def start_on(hierarchy: KillingHierarchy, proc, *, killed_before: int = 0) -> None:
    """Run an agent with a burstable pod for two minutes, or until it is killed."""
    node = NodeOnCgroups(proc, "pods", "system-reserved")
    node.hierarchy = hierarchy
    hierarchy.changes, hierarchy.killed_before = 0, killed_before

    async def story():
        async with node.run_agent():
            node.wanted.add(POD)
            await node.clock.sleep(2 * MINUTE)

    if not killed_before:
        run_virtual(story())
        return
    with pytest.raises((KilledAgent, BaseExceptionGroup)):
        run_virtual(story())
    assert hierarchy.changes == killed_before


def test_killed_at_any_write_of_its_start_the_next_one_ends_in_the_same_values(proc):
    undisturbed = KillingHierarchy()
    start_on(undisturbed, proc)
    assert undisturbed.cgroups[BURSTABLE].cpu_shares == 512
    assert undisturbed.changes > 10
    for number in range(1, undisturbed.changes + 1):
        hierarchy = KillingHierarchy()
        start_on(hierarchy, proc, killed_before=number)
        start_on(hierarchy, proc)
        assert hierarchy.cgroups == undisturbed.cgroups, number
