"""The wired agent as a node of a cluster: pods bound to it run, their statuses go back, and deleted ones are let go."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.pod import Pod
from klet.app.cluster.connection import ClusterClients, build_informers
from klet.app.cluster.pods import build_pod_parts
from klet.app.simulation.node import SimulatedNode, simulated_settings
from klet.events.recorder import EventingRecorder
from klet.kube.errors import NotFound
from klet.kube.informer import InformerSettings
from klet.node.pod_cidrs import PodCidrs
from klet.sources.config import PodConfig
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime.images import FakeImage
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.in_process import run_in_process

NODE = "node"


@asynccontextmanager
async def running_node(cluster, machine):
    """An agent on the machine, joined with the API server, until the block is left."""
    clock, randomness = SystemClock(), random.Random(1)
    clients = ClusterClients(
        main=cluster.client,
        heartbeat=cluster.client,
        heartbeat_transport=cluster.transport,
        transport=cluster.transport,
        events=cluster.client,
        reviews=cluster.client,
        informers=InformerSettings(cluster.client, cluster.watcher, clock, randomness),
    )
    informers = build_informers(clients.informers, NODE)
    recorder = EventingRecorder(inner=machine.journal, clock=clock)
    config = PodConfig(sources=("api",), recorder=recorder, clock=clock)
    async with run_in_process(machine.runtime, clock=clock) as client:
        agent = machine.build_agent(client, config, seed=1, settings=simulated_settings(8))
        parts = build_pod_parts(
            agent,
            clients,
            informers,
            recorder=recorder,
            sink=config,
            node_name=NODE,
            cidrs=PodCidrs(users=()),
        )
        async with asyncio.TaskGroup() as group:
            every = (informers.node, informers.pods, *agent.parts, *parts)
            tasks = [group.create_task(part.run(), name=type(part).__name__) for part in every]
            yield informers.pods
            for task in tasks:
                task.cancel()


async def until(pods, holds, name="p"):
    with pods.changes() as changes:
        async with asyncio.timeout(30):
            while not holds(found := pods.get(name, "default")):
                await changes.get()
    return found


@pytest.fixture
def machine():
    clock = SystemClock()
    return SimulatedNode(clock=clock, runtime=FakeRuntime(start=clock.now(), images=(FakeImage(name=IMAGE),)))


async def bind(cluster, name="p", **fields):
    pod = make_pod(name=name)
    spec = replace(pod.spec, node_name=NODE, termination_grace_period_seconds=0, **fields)
    return await cluster.client.create(replace(pod, spec=spec), "default")


async def test_a_pod_of_the_api_runs_and_is_let_go_when_it_is_deleted(cluster, machine):
    await cluster.client.create(Node(metadata=ObjectMeta(name=NODE)))
    async with running_node(cluster, machine) as pods:
        await bind(cluster)
        running = await until(pods, lambda pod: pod is not None and pod.status.phase == "Running")
        assert running.status.container_statuses[0].state.running is not None
        assert running.status.pod_ip
        await cluster.client.delete(Pod, "p", "default", grace=1)
        await until(pods, lambda pod: pod is None)
        with pytest.raises(NotFound):
            await cluster.client.get(Pod, "p", "default")


async def test_a_new_agent_goes_on_where_the_old_one_was(cluster, machine):
    await cluster.client.create(Node(metadata=ObjectMeta(name=NODE)))
    async with running_node(cluster, machine) as pods:
        await bind(cluster)
        before = await until(pods, lambda pod: pod is not None and pod.status.phase == "Running")
    async with running_node(cluster, machine) as pods:
        await bind(cluster, "q")
        await until(pods, lambda pod: pod is not None and pod.status.phase == "Running", "q")
        after = pods.get("p", "default")
        assert after.status == before.status
