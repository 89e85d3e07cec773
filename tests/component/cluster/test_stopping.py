"""What still waits for the API server when the agent stops: it is sent, for at most a few seconds."""

import asyncio
import logging
import random
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.api.event import Event
from klet.api.pod import Pod, PodStatus
from klet.app.run import DRAIN_TIME, publish_the_rest
from klet.embedded.faults import Cut, DelayAnswer
from klet.events.event_api import ApiEvents
from klet.events.recorder import EventingRecorder, EventWriter
from klet.journal.memory import MemoryJournal
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.metrics import MetricRegistry
from klet.model.causes import Finding, FindingSubject
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.status.manager import StatusManager
from klet.status.metrics import register_statuses
from klet.status.pod_api import ApiPods
from klet.testing.builders import make_pod

COUNT = 12


class HurriedClock(SystemClock):
    """Waits for a twentieth of the time."""

    async def wait(self, what, *, at_most: timedelta) -> None:
        await super().wait(what, at_most=at_most / 20)


class Stopped:
    """An agent whose parts have ended, with statuses and Events that nobody has sent."""

    def __init__(self, cluster):
        clock = SystemClock()
        self.client = cluster.client
        self.pods, self.board = PodStore(), StatusBoard(clock=clock)
        settings = InformerSettings(cluster.client, cluster.watcher, clock, random.Random(1))
        self.followed = Informer(struct=Pod, scope=WatchScope(), settings=settings)
        self.statuses = StatusManager(
            delays=register_statuses(MetricRegistry()),
            board=self.board,
            pods=self.pods,
            api=ApiPods(client=cluster.client, pods=self.followed),
            may_run=lambda _uid: False,
            clock=clock,
        )
        self.recorder = EventingRecorder(inner=MemoryJournal(clock=clock), clock=clock)
        self.events = EventWriter(
            findings=self.recorder,
            pods=self.pods,
            api=ApiEvents(client=cluster.client),
            node_name="n",
            clock=clock,
            randomness=random.Random(1),
        )

    async def fill(self):
        for number in range(COUNT):
            made = make_pod(name=f"p-{number}")
            pod = await self.client.create(replace(made, spec=replace(made.spec, node_name="n")), "default")
            self.pods.put(pod)
            self.board.put(uid_of(pod), PodStatus(phase="Running", qos_class="BestEffort"))
            subject = FindingSubject(namespace="default", name=pod.metadata.name, uid=pod.metadata.uid)
            self.recorder.record(Finding(subject=subject, decider="d", decision=Reason.STARTED, message="m"))

    async def stop(self, clock):
        """Return how long it took."""
        began = clock.monotonic()
        await publish_the_rest((self.statuses, self.events), clock=clock)
        return clock.monotonic() - began

    async def arrived(self):
        pods = await self.client.list(Pod, "default")
        events = await self.client.list(Event, "default")
        return [pod.status.phase for pod in pods.items].count("Running"), len(events.items)


@pytest.fixture
async def stopped(cluster):
    stopped = Stopped(cluster)
    await stopped.fill()
    return stopped


async def test_everything_is_sent_to_a_slow_server(cluster, stopped, caplog):
    caplog.set_level(logging.INFO, logger="klet")
    late = DelayAnswer(timedelta(milliseconds=100))
    cluster.api.faults.plan(late, applies=lambda ask: ask.method in {"PATCH", "POST"}, times=1000)
    await stopped.stop(SystemClock())
    cluster.api.faults.clear()
    assert await stopped.arrived() == (COUNT, COUNT)
    (line,) = caplog.records
    assert (line.message, line.statuses, line.events) == ("Publishing what waits", COUNT, COUNT)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(Cut(), id="cuts every connection"), pytest.param(DelayAnswer(timedelta(hours=1)), id="hangs")],
)
async def test_a_dead_server_delays_the_end_by_the_deadline_at_most(cluster, stopped, caplog, fault):
    cluster.api.faults.plan(fault, applies=lambda ask: ask.method in {"PATCH", "POST"}, times=1000)
    async with asyncio.timeout(30):
        taken = await stopped.stop(HurriedClock())
    assert taken < DRAIN_TIME.total_seconds()
    (line,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert (line.statuses, line.events) == (COUNT, COUNT)


async def test_an_agent_with_nothing_to_send_ends_at_once(cluster, caplog):
    caplog.set_level(logging.INFO, logger="klet")
    await Stopped(cluster).stop(SystemClock())
    assert caplog.messages == []
