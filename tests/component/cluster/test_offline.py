"""A node whose API server goes away, with `--klet-offline` and without: while the agent runs, and before it starts."""

import asyncio
import random
import shutil
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.api.certificates import ClusterTrustBundle
from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.event import Event
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.pod import Pod
from klet.embedded import refusals
from klet.embedded.faults import FallSilent, RefuseRequest
from klet.embedded.identities import ApiUser
from klet.embedded.review_answers import AllowEverything
from klet.embedded.server import build_api, serving
from klet.embedded.store import Store
from klet.host.inotify import watch_directory
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Watcher
from klet.testing.clock import FastClock

PATIENCE = timedelta(milliseconds=300)
CONFIG = {"name": "cfg", "configMap": {"name": "cfg"}}
KEY = {"name": "key", "secret": {"secretName": "key"}}
MAYBE = {"name": "maybe", "configMap": {"name": "never-made", "optional": True}}
ACCESS = {"name": "access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
FROM_OBJECTS = {"envFrom": [{"configMapRef": {"name": "cfg"}}, {"secretRef": {"name": "key"}}]}


class MortalCluster:
    """An API server that can be stopped and started; its address and what it has stored stay."""

    def __init__(self, api, client, watcher, transport, port):
        self.api = api
        self.client = client
        self.watcher = watcher
        self.transport = transport
        self._port = port
        self._serving = AsyncExitStack()

    async def start(self):
        await self._serving.enter_async_context(serving(self.api, host="127.0.0.1", port=self._port))

    async def stop(self):
        await self._serving.aclose()

    async def put(self, name, **data):
        return await self.client.create(ConfigMap(metadata=ObjectMeta(name=name), data=data), "default")

    async def put_secret(self, name, **data):
        return await self.client.create(Secret(metadata=ObjectMeta(name=name), data=data), "default")


@pytest.fixture
async def cluster(unused_tcp_port):
    clock = FastClock()
    tokens = {"secret": ApiUser("admin", groups=("system:masters",))}
    api = build_api(store=Store.open(), tokens=tokens, rights=AllowEverything(), clock=clock)
    login = Login(token="secret")
    access = Access(server=f"http://127.0.0.1:{unused_tcp_port}", login=login)
    transport = Transport(access=access, credentials=Credentials(login=login, clock=clock))
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
    watcher = Watcher(transport=transport, randomness=random.Random(1))
    made = MortalCluster(api, client, watcher, transport, unused_tcp_port)
    await made.start()
    yield made
    await made.stop()
    await transport.close()
    api.store.close()


@pytest.fixture
def offline(node):
    node.offline_after = PATIENCE
    node.watch_clock = FastClock()
    return node


def reboot(node):
    """Everything that ran is dead, and memory is gone; so is whatever the pods' directories had."""
    runtime = node.machine.runtime
    for container in runtime.containers():
        if container.is_running:
            runtime.end_container(container.id, 255)
    for sandbox in runtime.sandboxes():
        runtime.kill_sandbox(sandbox.id)
    runtime.advance(node.clock.now())
    assert live(node) == set()
    shutil.rmtree(node.root / "pods", ignore_errors=True)
    node.mounts.mounts.clear()


async def reported(node, name, holds):
    """Wait until the node itself says so of a pod."""
    with node.statuses.changes() as changes:
        async with asyncio.timeout(30):
            while True:
                pod = node.pods.get(name, "default")
                status = None if pod is None else node.statuses.get(pod.metadata.uid)
                if status is not None and node.statuses.is_reported(pod.metadata.uid) and holds(status):
                    return status
                await changes.get()


def is_running(status):
    return status.phase == "Running" and all(each.state.running for each in status.container_statuses)


def restarts(status):
    return sum(each.restart_count for each in status.container_statuses)


def live(node):
    return {each.id for each in node.machine.runtime.containers() if each.is_running}


async def at_server(cluster, name, holds):
    """Wait until the API server has it so."""
    clock = SystemClock()
    async with asyncio.timeout(40):
        while not holds(pod := await cluster.client.get(Pod, name, "default")):
            await clock.sleep(timedelta(milliseconds=50))
    return pod


async def test_pods_run_and_restart_while_the_server_is_away_and_are_reported_afterwards(offline, cluster):
    node = offline
    await cluster.put("cfg", color="green")
    await cluster.put_secret("key", word=b"hush")
    async with node.run():
        await node.bind(container=FROM_OBJECTS)
        before = await node.until_running()
        await cluster.stop()
        await node.reported("ApiServerAway")
        [container] = live(node)
        node.machine.runtime.end_container(container, 3)
        again = await reported(node, "p", lambda status: restarts(status) == 1 and is_running(status))
        assert again.pod_ip == before.status.pod_ip
        assert container not in live(node)
        assert node.machine.runtime.containers()[-1].config.envs[0].value
        await cluster.start()
        assert "after" in (await node.reported("ApiServerBack"))[0]
        pod = await at_server(cluster, "p", lambda pod: restarts(pod.status) == 1)
        assert pod.status.container_statuses[0].last_state.terminated.exit_code == 3
        async with asyncio.timeout(30):
            while True:
                events = await cluster.client.list(Event, "default")
                if sum(each.count for each in events.items if each.reason == "Started") == 2:
                    break
                await SystemClock().sleep(timedelta(milliseconds=100))


@pytest.mark.parametrize("strategy", ["Watch", "Cache", "Get"])
async def test_after_a_reboot_without_the_server_pods_and_their_objects_come_back(offline, cluster, strategy):
    node = offline
    await cluster.put("cfg", color="green")
    await cluster.put_secret("key", word=b"hush-hush")
    async with node.run(strategy=strategy):
        pod = await node.bind(
            container=FROM_OBJECTS, volumes=[CONFIG, KEY, MAYBE, ACCESS], serviceAccountName="default"
        )
        await node.until_running()
        token = (node.volume(pod, "projected", "access") / "token").read_text()
    await cluster.stop()
    reboot(node)
    async with node.run(strategy=strategy):
        [message] = {*await node.reported("StartedFromMemory")}
        assert message.startswith("API server away since ")
        assert "started from what was accepted at " in message
        status = await reported(node, "p", lambda status: is_running(status) and restarts(status) == 1)
        assert status.start_time is not None
        assert (node.volume(pod, "configmap", "cfg") / "color").read_text() == "green"
        assert (node.volume(pod, "secret", "key") / "word").read_text() == "hush-hush"
        assert list(node.volume(pod, "configmap", "maybe").glob("[!.]*")) == []
        assert (node.volume(pod, "projected", "access") / "token").read_text() == token
        [container] = [each for each in node.machine.runtime.containers() if each.is_running]
        found = {variable.key: variable.value for variable in container.config.envs}
        assert (found["color"], found["word"]) == (b"green", b"hush-hush")
    kept = [path for path in (node.root / "klet-offline").rglob("*") if path.is_file()]
    assert kept
    assert not any(word in path.read_bytes() for path in kept for word in (b"hush-hush", token.encode()))


async def test_after_a_reboot_without_the_server_the_runtime_has_its_pod_cidrs_before_the_pods(offline, cluster):
    node = offline
    await cluster.client.patch(Node, "node", patch={"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}})
    async with node.run():
        await node.bind()
        await node.until_running()
    await cluster.stop()
    reboot(node)
    # A runtime that was started again has forgotten what it was given.
    node.cidrs.taken.clear()
    async with node.run():
        await reported(node, "p", is_running)
        assert node.cidrs.taken == [("10.9.0.0/24",)]


async def test_a_runtime_that_does_not_take_the_pod_cidrs_gets_them_again(offline, cluster):
    node = offline
    node.clock = FastClock()
    await cluster.client.patch(Node, "node", patch={"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}})
    async with node.run():
        await node.bind()
        await node.until_running()
    await cluster.stop()
    reboot(node)
    node.cidrs.failures = 2
    async with node.run(), asyncio.timeout(30):
        await reported(node, "p", is_running)
        while not node.cidrs.taken:
            await SystemClock().sleep(timedelta(milliseconds=20))


TRUSTED = {"clusterTrustBundle": {"name": "roots", "path": "roots.pem"}}
SIGNED = {
    "clusterTrustBundle": {
        "signerName": "example.com/s",
        "labelSelector": {"matchLabels": {"live": "yes"}},
        "path": "s.pem",
    }
}


def bundle(name, text, **fields):
    pem = f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"
    labels = fields.pop("labels", {})
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"trustBundle": pem, **fields}}
    return convert(ClusterTrustBundle, body)


async def test_after_a_reboot_without_the_server_trust_bundles_are_shown(offline, cluster):
    node = offline
    await cluster.client.create(bundle("roots", "AAAA"))
    await cluster.client.create(bundle("example.com:s:a", "BBBB", signerName="example.com/s", labels={"live": "yes"}))
    await cluster.client.create(bundle("unused", "CCCC"))
    trust = {"name": "trust", "projected": {"sources": [TRUSTED, SIGNED]}}
    kept = node.root / "klet-offline" / "surroundings.json"
    async with node.run():
        pod = await node.bind(volumes=[trust])
        await node.until_running()
        async with asyncio.timeout(20), aclosing(watch_directory(kept.parent)) as changes:
            async for _ in changes:
                if b"BBBB" in kept.read_bytes():
                    break
    assert b"CCCC" not in kept.read_bytes()
    await cluster.stop()
    reboot(node)
    async with node.run():
        await reported(node, "p", is_running)
        assert "AAAA" in (node.volume(pod, "projected", "trust") / "roots.pem").read_text()
        assert "BBBB" in (node.volume(pod, "projected", "trust") / "s.pem").read_text()


async def test_a_server_that_is_back_has_the_last_word(offline, cluster):
    node = offline
    names = ("deleted", "changed", "same")
    async with node.run():
        for name in names:
            await node.bind(name)
        for name in names:
            await node.until_running(name)
    await cluster.client.delete(Pod, "deleted", "default", grace=0)
    await cluster.client.patch(Pod, "changed", "default", patch={"metadata": {"labels": {"new": "label"}}})
    await node.bind("new")
    await cluster.stop()
    reboot(node)
    async with node.run():
        for name in names:
            await reported(node, name, is_running)
        assert len(live(node)) == 3
        [same] = [each for each in node.machine.runtime.containers() if each.is_running and of(each) == "same"]
        await cluster.start()
        await node.until_running("new")
        await at_server(cluster, "same", lambda pod: restarts(pod.status) == 1)
        with node.machine.journal.follow() as news:
            async with asyncio.timeout(30):
                while "deleted" in {of(each) for each in node.machine.runtime.containers() if each.is_running}:
                    await news.get()
        running = {of(each): each.id for each in node.machine.runtime.containers() if each.is_running}
        assert running.keys() == {"changed", "same", "new"}
        assert running["same"] == same.id
        assert node.pods.get("changed", "default").metadata.labels == {"new": "label"}


def of(container):
    return container.labels["io.kubernetes.pod.name"]


async def test_a_pod_that_was_over_does_not_run_again(offline, cluster):
    node = offline
    async with node.run():
        await node.bind("job", restartPolicy="Never")
        await node.bind("web")
        await node.until_running("job")
        await node.until_running("web")
        [job] = [each.id for each in node.machine.runtime.containers() if of(each) == "job"]
        await cluster.stop()
        node.machine.runtime.end_container(job, 0)
        await reported(node, "job", lambda status: status.phase == "Succeeded")
    reboot(node)
    async with node.run():
        await reported(node, "web", is_running)
        await reported(node, "job", lambda status: status.phase == "Succeeded")
        assert {of(each) for each in node.machine.runtime.containers() if each.is_running} == {"web"}
        await cluster.start()
        await at_server(cluster, "job", lambda pod: pod.status.phase == "Succeeded")


async def test_a_deletion_that_began_before_the_outage_is_finished_after_it(offline, cluster):
    node = offline
    async with node.run():
        await node.bind("kept")
        await node.bind("leaving")
        await node.until_running("kept")
        await node.until_running("leaving")
    await cluster.client.delete(Pod, "leaving", "default", grace=30)
    cluster.api.faults.plan(
        RefuseRequest(refusals.internal("boom")), applies=lambda ask: ask.method != "GET", times=100_000
    )
    async with node.run():
        with node.machine.journal.follow() as news:
            async with asyncio.timeout(30):
                while len(live(node)) > 1:
                    await news.get()
    await cluster.stop()
    reboot(node)
    async with node.run():
        await reported(node, "kept", is_running)
        assert {of(each) for each in node.machine.runtime.containers() if each.is_running} == {"kept"}
        cluster.api.faults.clear()
        await cluster.start()
        await node.until(lambda pod: pod is None, "leaving")


async def test_an_agent_that_restarts_without_the_server_restarts_no_container(offline, cluster):
    node = offline
    async with node.run():
        await node.bind()
        before = await node.until_running()
    running = live(node)
    await cluster.stop()
    async with node.run():
        status = await reported(node, "p", is_running)
        assert (live(node), restarts(status)) == (running, 0)
        assert replace(status, conditions=()) == replace(before.status, conditions=())
        await cluster.start()
        await node.reported("ApiServerBack")
    assert live(node) == running


async def test_a_pod_that_was_let_go_is_not_remembered(offline, cluster):
    node = offline
    await cluster.put("cfg", color="green")
    async with node.run():
        await node.bind("p", volumes=[CONFIG])
        await node.bind("q")
        await node.until_running("p")
        await node.until_running("q")
        await cluster.client.delete(Pod, "p", "default", grace=0)
        await node.until(lambda pod: pod is None, "p")
        with node.machine.journal.follow() as news:
            while len(live(node)) > 1:
                await news.get()
        # What the pod used is removed after the pod itself: a killed agent would leave it to the next change.
        kept = node.root / "klet-offline" / "configmaps"
        async with asyncio.timeout(30), aclosing(watch_directory(kept)) as changes:
            async for _ in changes:
                if not list(kept.iterdir()):
                    break
    await cluster.stop()
    reboot(node)
    async with node.run():
        await reported(node, "q", is_running)
        assert [pod.metadata.name for pod in node.pods.all()] == ["q"]
    assert list(kept.iterdir()) == []


async def test_a_server_that_refuses_is_not_away(offline, cluster):
    node = offline
    async with node.run():
        await node.bind()
        await node.until_running()
    reboot(node)
    cluster.api.faults.plan(RefuseRequest(refusals.unauthorized()), times=1_000_000)
    async with node.run():
        await node.clock.sleep(4 * PATIENCE)
        assert not node.pods.is_synced
        assert live(node) == set()
        cluster.api.faults.clear()
        await reported(node, "p", is_running)
    assert "StartedFromMemory" not in {cause.finding.decision for cause in node.machine.journal.all()}


async def test_a_server_that_says_nothing_is_away(offline, cluster):
    node = offline
    async with node.run():
        await node.bind()
        await node.until_running()
    reboot(node)
    cluster.api.faults.plan(FallSilent(), times=1_000_000)
    async with node.run():
        await node.reported("StartedFromMemory")
        await reported(node, "p", is_running)


async def test_without_the_switch_nothing_is_kept_and_nothing_starts(node, cluster):
    node.watch_clock = FastClock()
    async with node.run():
        await node.bind()
        await node.until_running()
    await cluster.stop()
    reboot(node)
    async with node.run():
        await node.clock.sleep(4 * PATIENCE)
        assert live(node) == set()
        await cluster.start()
        await reported(node, "p", is_running)
    assert not (node.root / "klet-offline").exists()
