"""Statuses, mirrors and Events on their way to an API server."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.api.event import Event
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.pod import Pod, PodCondition, PodIP, PodStatus
from klet.api.pod_annotations import HASH_ANNOTATION, MIRROR_ANNOTATION, SOURCE_ANNOTATION
from klet.embedded import refusals
from klet.embedded.faults import Cut, RefuseRequest
from klet.events.event_api import ApiEvents
from klet.events.recorder import EventingRecorder, EventWriter
from klet.journal.memory import MemoryJournal
from klet.kube.errors import NotFound
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.metrics import MetricRegistry
from klet.model.causes import Finding, FindingSubject
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.pods.mirror_api import ApiMirrors
from klet.pods.mirrors import LEAVING, MirrorKeeper
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.status.manager import SWEEP, PodGone, StatusManager
from klet.status.metrics import register_statuses
from klet.status.pod_api import ApiPods
from klet.testing.builders import make_pod

GATE = PodCondition(type="example.com/gate", status="True")
READY = PodCondition(type="Ready", status="True")
UNREADY = PodCondition(type="Ready", status="False", reason="PodFailed")


def status(phase: str, **fields) -> PodStatus:
    return PodStatus(phase=phase, qos_class="BestEffort", **fields)


class Bench:
    """A board whose statuses are published, and what an API server makes of them."""

    def __init__(self, cluster):
        clock = SystemClock()
        self.cluster = cluster
        self.client = cluster.client
        self.pods, self.board = PodStore(), StatusBoard(clock=clock)
        settings = InformerSettings(cluster.client, cluster.watcher, clock, random.Random(1))
        self.followed = Informer(struct=Pod, scope=WatchScope(), settings=settings)
        self.nodes = Informer(struct=Node, scope=WatchScope(), settings=settings)
        self.running: set[str] = set()
        self.looks_left = 0
        self.publisher = StatusManager(
            delays=register_statuses(MetricRegistry()),
            board=self.board,
            pods=self.pods,
            api=ApiPods(client=cluster.client, pods=self.followed),
            may_run=lambda uid: uid in self.running,
            clock=clock,
        )
        self.mirrors = MirrorKeeper(
            pods=self.pods,
            api=ApiMirrors(client=cluster.client, nodes=self.nodes, node_name="n"),
            is_ending=lambda _: self.ends_slowly(),
            clock=clock,
        )

    @asynccontextmanager
    async def running_parts(self) -> AsyncIterator[None]:
        parts = (self.followed, self.nodes, self.publisher, self.mirrors)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in parts]
            await self.followed.until_synced()
            await self.nodes.until_synced()
            yield
            for task in tasks:
                task.cancel()

    def ends_slowly(self) -> bool:
        """Whether a static pod is being stopped; it is over after a few looks."""
        self.looks_left -= 1
        return self.looks_left > 0

    async def bound_pod(self) -> Pod:
        made = make_pod(name="p")
        pod = await self.client.create(replace(made, spec=replace(made.spec, node_name="n")), "default")
        # Pods come from the watch.
        self.pods.put(await self.until(lambda each: each is not None))
        return pod

    async def until(self, holds) -> Pod | None:
        """Wait until the pod at the API server is so."""
        with self.followed.changes() as changes:
            async with asyncio.timeout(20):
                while not holds(found := self.followed.get("p", "default")):
                    await changes.get()
            return found


@pytest.fixture
async def bench(cluster):
    bench = Bench(cluster)
    async with bench.running_parts():
        yield bench


async def test_a_status_arrives_and_others_conditions_stay(bench):
    pod = await bench.bound_pod()
    gate = {"status": {"conditions": [{"type": GATE.type, "status": "True"}]}}
    await bench.client.patch(Pod, "p", "default", patch=gate, subresource="status")
    bench.board.put(
        uid_of(pod), status(phase="Running", conditions=(READY,), pod_ip="10.0.0.1", pod_ips=(PodIP(ip="10.0.0.1"),))
    )
    found = await bench.until(lambda each: each is not None and each.status.phase == "Running")
    assert {each.type for each in found.status.conditions} == {GATE.type, "Ready"}
    assert found.status.pod_ip == "10.0.0.1"


async def test_the_newest_status_wins_over_a_server_that_fails(bench):
    pod = await bench.bound_pod()
    bench.cluster.api.faults.plan(
        RefuseRequest(refusals.internal("boom")), applies=lambda ask: ask.method == "PATCH", times=2
    )
    bench.board.put(uid_of(pod), status(phase="Pending", message="first"))
    bench.board.put(uid_of(pod), status(phase="Running", message="second"))
    found = await bench.until(lambda each: each is not None and each.status.phase == "Running")
    assert found.status.message == "second"


async def test_a_pod_is_let_go_when_it_has_ended_and_nothing_is_held(bench):
    pod = await bench.bound_pod()
    await bench.client.delete(Pod, "p", "default")
    leaving = await bench.until(lambda each: each is not None and each.metadata.deletion_timestamp is not None)
    bench.pods.put(replace(pod, metadata=leaving.metadata))
    bench.running.add(uid_of(pod))
    bench.board.put(uid_of(pod), status(phase="Failed", conditions=(UNREADY,)))
    found = await bench.until(lambda each: each is not None and bool(each.status.conditions))
    assert found.status.phase == "Pending"
    bench.running.clear()
    bench.board.put(uid_of(pod), status(phase="Failed"), is_finished=True)
    await bench.until(lambda each: each is None)
    with pytest.raises(NotFound):
        await bench.client.get(Pod, "p", "default")


async def test_a_pod_that_the_watch_has_seen_go_is_not_asked_for(bench):
    """A node may not read a pod that is no longer bound to it: the answer would be 403."""
    pod = await bench.bound_pod()
    await bench.client.delete(Pod, "p", "default", grace=0)
    await bench.until(lambda each: each is None)
    bench.cluster.api.faults.plan(RefuseRequest(refusals.internal("nobody should ask")), times=99)
    with pytest.raises(PodGone):
        await ApiPods(client=bench.client, pods=bench.followed).read(pod)


async def test_another_pod_of_the_name_is_not_touched(bench):
    pod = await bench.bound_pod()
    await bench.client.delete(Pod, "p", "default", grace=0)
    other = await bench.client.create(replace(make_pod(name="p"), metadata=ObjectMeta(name="p")), "default")
    bench.board.put(uid_of(pod), status(phase="Failed"), is_finished=True)
    marker = await bench.client.create(replace(make_pod(name="q"), metadata=ObjectMeta(name="q")), "default")
    with bench.followed.changes() as changes:
        while bench.followed.get("q", "default") is None:
            await changes.get()
    bench.pods.put(marker)
    bench.board.put(uid_of(marker), status(phase="Running"))
    with bench.followed.changes() as changes:
        while (seen := bench.followed.get("q", "default")) is None or seen.status.phase != "Running":
            await changes.get()
    assert (await bench.client.get(Pod, "p", "default")).status == other.status


def static(hash_: str = "h1") -> Pod:
    pod = make_pod(name="p")
    annotations = {SOURCE_ANNOTATION: "file", HASH_ANNOTATION: hash_}
    return replace(
        pod,
        metadata=replace(pod.metadata, annotations=annotations, uid=f"static-{hash_}"),
        spec=replace(pod.spec, node_name="n"),
    )


async def test_a_static_pod_has_a_mirror_that_follows_it(bench):
    node = await bench.client.create(Node(metadata=ObjectMeta(name="n")))
    bench.pods.put(static())
    mirror = await bench.until(lambda each: each is not None)
    assert mirror.metadata.annotations[MIRROR_ANNOTATION] == "h1"
    assert mirror.metadata.owner_references[0].uid == node.metadata.uid
    assert mirror.metadata.uid != "static-h1"
    bench.pods.put_mirror(mirror)
    bench.board.put("static-h1", status(phase="Running"))
    await bench.until(lambda each: each is not None and each.status.phase == "Running")
    bench.pods.remove("static-h1")
    bench.pods.put(static("h2"))
    changed = await bench.until(lambda each: each is not None and each.metadata.annotations[MIRROR_ANNOTATION] == "h2")
    bench.pods.put_mirror(changed)
    bench.pods.remove("static-h2")
    await bench.until(lambda each: each is None)


async def test_a_mirror_that_is_deleted_is_created_again(bench):
    await bench.client.create(Node(metadata=ObjectMeta(name="n")))
    bench.pods.put(static())
    mirror = await bench.until(lambda each: each is not None)
    bench.pods.put_mirror(mirror)
    await bench.client.delete(Pod, mirror.metadata.name, mirror.metadata.namespace, grace=30)
    deleted_at = SystemClock().monotonic()
    bench.pods.put_mirror(await bench.until(lambda each: each.metadata.deletion_timestamp is not None))
    again = await bench.until(lambda each: each is not None and each.metadata.uid != mirror.metadata.uid)
    assert SystemClock().monotonic() - deleted_at >= LEAVING.total_seconds()  # kubectl sees it go
    assert again.metadata.deletion_timestamp is None
    assert again.metadata.annotations[MIRROR_ANNOTATION] == "h1"


async def test_a_mirror_that_comes_later_shows_the_status_at_once(bench):
    await bench.client.create(Node(metadata=ObjectMeta(name="n")))
    bench.board.put("static-h1", status(phase="Running"))
    bench.pods.put(static())
    bench.pods.put_mirror(await bench.until(lambda each: each is not None))
    async with asyncio.timeout(SWEEP.total_seconds() / 2):
        await bench.until(lambda each: each.status.phase == "Running")


async def test_a_status_that_somebody_else_wrote_is_set_right_at_once(bench):
    pod = await bench.bound_pod()
    bench.board.put(uid_of(pod), status(phase="Running"))
    await bench.until(lambda each: each is not None and each.status.phase == "Running")
    changed = await bench.client.patch(
        Pod, "p", "default", patch={"status": {"phase": "Pending"}}, subresource="status"
    )
    await bench.until(lambda each: each.metadata.resource_version == changed.metadata.resource_version)
    bench.pods.put(changed)
    async with asyncio.timeout(SWEEP.total_seconds() / 2):
        await bench.until(lambda each: each.status.phase == "Running")


async def test_a_mirror_stays_until_its_static_pod_is_over_and_no_longer(bench):
    await bench.client.create(Node(metadata=ObjectMeta(name="n")))
    bench.pods.put(static())
    bench.pods.put_mirror(await bench.until(lambda each: each is not None))
    bench.looks_left = 3
    bench.pods.remove("static-h1")
    await bench.until(lambda each: each is None)
    assert bench.looks_left == 0


async def test_an_event_is_written_once_and_then_counted(bench):
    pod = await bench.bound_pod()
    recorder = EventingRecorder(inner=MemoryJournal(clock=SystemClock()), clock=SystemClock())
    writer = EventWriter(
        findings=recorder,
        pods=bench.pods,
        api=ApiEvents(client=bench.client),
        node_name="n",
        clock=SystemClock(),
        randomness=random.Random(1),
    )
    subject = FindingSubject(namespace="default", name="p", uid=pod.metadata.uid, container="main")
    started = Finding(subject=subject, decider="d", decision=Reason.STARTED, message="Container started")
    settings = InformerSettings(bench.client, bench.cluster.watcher, SystemClock(), random.Random(1))
    events = Informer(struct=Event, scope=WatchScope("default"), settings=settings)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (writer, events)]
        await events.until_synced()
        with events.changes() as changes:
            bench.cluster.api.faults.plan(Cut(), applies=lambda ask: ask.method == "PATCH")
            recorder.record(replace_decision(started, Reason.POD_ADDED))
            recorder.record(started)
            await changes.get()
            [event] = events.all()
            assert (event.reason, event.type, event.count) == ("Started", "Normal", 1)
            assert event.involved_object.field_path == "spec.containers{main}"
            assert (event.source.component, event.reporting_instance) == ("kubelet", "n")
            await bench.client.delete(Event, event.metadata.name, "default")
            await changes.get()
            recorder.record(started)
            bench.cluster.api.faults.clear()
            await changes.get()
            [again] = events.all()
            assert (again.metadata.name, again.count) == (event.metadata.name, 2)
        for task in tasks:
            task.cancel()


def replace_decision(finding: Finding, decision: Reason) -> Finding:
    return Finding(subject=finding.subject, decider=finding.decider, decision=decision)
