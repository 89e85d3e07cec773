"""A real control plane for the session, and a node of it for each module that wants one.

Everything is on loopback and in directories of the test run. Who waits, waits for what the API server shows.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from klet.aio.clock import SystemClock
from klet.api.codec import convert
from klet.api.event import Event
from klet.api.node import Node
from klet.api.pod import Pod
from klet.cri.client import connect
from klet.host.images import BUSYBOX_IMAGE
from klet.kube.client import KubeClient
from klet.kube.errors import KubeError, NotFound
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import Watcher, WatchScope
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods
from klet.testing.control_plane.cluster import ControlPlane, run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects
from klet.testing.control_plane.nodes import ClusterNode
from klet.testing.control_plane.processes import Daemon
from klet.testing.control_plane.programs import (
    KUBECTL,
    KUBELET,
    describe_program,
    find_program,
    missing_programs,
    why_impossible,
)

PATIENCE = timedelta(seconds=90)
HEARTBEAT = timedelta(seconds=2)
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


class Api:
    """The API server as an administrator sees it, in the loop of one test."""

    def __init__(self, *, client: KubeClient, pods: Informer[Pod], nodes: Informer[Node], plane: ControlPlane) -> None:
        self.client = client
        self.pods = pods
        self.nodes = nodes
        self.plane = plane

    async def create(self, manifest: Mapping[str, Any], *, node: str = "") -> Pod:
        """Create a pod, bound to a node if one is named."""
        spec = {**manifest["spec"], **({"nodeName": node} if node else {})}
        return await self.client.create(convert(Pod, {**manifest, "spec": spec}), "default")

    async def until_pod(self, name: str, holds: Callable[[Pod], bool], *, what: str) -> Pod:
        return await self._until(self.pods, lambda: self.pods.get(name, "default"), holds, f"{name}: {what}")

    async def until_running(self, name: str) -> Pod:
        """The pod once all of its containers are ready."""
        return await self.until_pod(name, is_running, what="running")

    async def until_succeeded(self, name: str) -> str:
        """What the pod says of itself when it has ended."""
        pod = await self.until_pod(name, lambda pod: pod.status.phase in {"Succeeded", "Failed"}, what="ended")
        assert pod.status.phase == "Succeeded", pod.status
        return pod.status.container_statuses[0].state.terminated.message

    async def until_gone(self, name: str) -> None:
        await self.until_pods(lambda pods: all(pod.metadata.name != name for pod in pods), what=f"{name} is gone")

    async def until_pods(self, holds: Callable[[tuple[Pod, ...]], bool], *, what: str) -> None:
        await self._until(self.pods, self.pods.all, holds, what)

    async def until_node(self, name: str, holds: Callable[[Node], bool], *, what: str) -> Node:
        return await self._until(self.nodes, lambda: self.nodes.get(name), holds, f"{name}: {what}")

    async def until_event(self, reason: str, *, about: str) -> Event:
        """An Event of this reason, about the object of this name."""
        selector = (("fieldSelector", f"involvedObject.name={about},reason={reason}"),)
        async with self.informer(Event, WatchScope("default", selector)) as events:
            found = await self._until(events, events.all, bool, f"{about}: Event {reason}")
        return found[0]

    async def until(self, read, holds, *, patience: timedelta = PATIENCE):
        """What is read once it is so, or after a while. For what no watch shows."""
        give_up = self.plane.clock.now() + patience
        while not holds(found := await read()) and self.plane.clock.now() < give_up:
            await self.plane.clock.sleep(timedelta(milliseconds=100))
        return found

    async def delete(self, name: str) -> None:
        await self.client.delete(Pod, name, "default")

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints; fails if it fails."""
        process = await asyncio.create_subprocess_exec(
            str(find_program(KUBECTL)),
            f"--kubeconfig={self.plane.admin}",
            "--request-timeout=20s",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE.total_seconds()):
            output, errors = await process.communicate(stdin.encode())
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {errors.decode()}"
        return output.decode()

    async def _until(self, informer, read, holds, what):
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                with informer.changes() as changes:
                    while (found := read()) is None or not holds(found):
                        await changes.get()
        except TimeoutError:
            pytest.fail(f"{what}: not within {PATIENCE}; last seen: {read()}")
        return found

    @asynccontextmanager
    async def informer(self, struct, scope) -> AsyncGenerator[Informer, None]:
        async with informing(self.client, self.plane, (struct, scope)) as (informer,):
            yield informer


@asynccontextmanager
async def informing(client: KubeClient, plane: ControlPlane, *wanted: tuple[type, WatchScope]):
    """Informers that run until the block is left."""
    chance = random.Random(1)
    async with plane.transport() as transport, asyncio.TaskGroup() as group:
        watcher = Watcher(transport=transport, randomness=chance)
        settings = InformerSettings(client, watcher, plane.clock, chance)
        informers = tuple(Informer(struct=struct, scope=scope, settings=settings) for struct, scope in wanted)
        tasks = [group.create_task(each.run()) for each in informers]
        tasks.append(group.create_task(keep_asking(client, plane)))
        for each in informers:
            await each.until_synced()
        yield informers
        for task in tasks:
            task.cancel()


async def keep_asking(client: KubeClient, plane: ControlPlane) -> None:
    """As a node does for its lease: watches that lost their server learn by that when it is back."""
    while True:
        await plane.clock.sleep(HEARTBEAT)
        with suppress(KubeError):
            await client.read("/readyz")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory):
    if reason := why_impossible(KUBECTL):
        pytest.skip(reason)
    async with run_control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        async with plane.client() as client:
            await create_default_objects(client, plane.identities.authority.read_text())
        yield plane


@pytest.fixture
async def api(control_plane):
    async with (
        control_plane.client() as client,
        informing(client, control_plane, (Pod, WatchScope()), (Node, WatchScope())) as (pods, nodes),
    ):
        # A test that is skipped at once would end them while they connect, and asyncio leaves such a socket open.
        await pods.until_synced()
        await nodes.until_synced()
        yield Api(client=client, pods=pods, nodes=nodes, plane=control_plane)


@pytest.fixture(scope="module")
def agent_flags() -> tuple[str, ...]:
    """More flags for the module's klet."""
    return ("--klet-leave-kernel-tunables",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(request, control_plane, containerd, tmp_path_factory):
    """A node of the module's own: directories and credentials; nothing runs. What is left at the end is removed."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    made = ClusterNode(name=name, directory=tmp_path_factory.mktemp(name), plane=control_plane, containerd=containerd)
    made.prepare()
    yield made
    async with control_plane.client() as client:
        for pod in (await client.list(Pod)).items:
            if pod.spec.node_name == name:
                await client.delete(Pod, pod.metadata.name, pod.metadata.namespace, grace=0)
        with suppress(NotFound):
            await client.delete(Node, name)
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as runtime:
        await remove_pods(runtime, clock=SystemClock())
    made.unmount_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(node, agent_flags):
    """klet on the module's node, for all of its tests."""
    async with node.running(node.klet(*agent_flags)) as daemon:
        yield daemon


@pytest.fixture
async def ready(api, node, agent) -> Node:
    """The node, once it is ready."""
    return await until_ready(api, node, agent)


@pytest.fixture(autouse=True)
def nothing_refused(request):
    """A node may do all that klet asks for: whatever the test is about, nothing is forbidden."""
    yield
    if "node" in request.fixturenames and "control_plane" in request.fixturenames:
        plane, node = request.getfixturevalue("control_plane"), request.getfixturevalue("node")
        assert plane.refused(f"system:node:{node.name}") == []


@pytest.fixture(scope="session")
def upstream_kubelet():
    if missing_programs((KUBELET,)):
        pytest.skip(describe_program(KUBELET))


async def until_ready(api: Api, node: ClusterNode, agent: Daemon) -> Node:
    return await api.until_node(node.name, is_ready, what=f"Ready; the agent says: {agent.log}")


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and all(each.ready for each in pod.status.container_statuses)


@pytest.fixture(scope="session")
def mounting(manifest):
    """A pod whose one container has one volume at /v."""

    def build(name: str, script: str, volume: dict, **spec: object) -> dict:
        made = manifest(name, main=script, spec={"volumes": [{"name": "v", **volume}], **spec})
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        return made

    return build


@pytest.fixture(scope="session")
def manifest():
    """A pod of busybox shells: `manifest("web", main="sleep 1000")`."""

    def build(name: str, *, spec: dict | None = None, metadata: dict | None = None, **scripts: str) -> dict:
        containers = [
            {"name": key, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script]}
            for key, script in (scripts or {"main": FOREVER}).items()
        ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "automountServiceAccountToken": False,
                "dnsPolicy": "Default",
                "terminationGracePeriodSeconds": 2,
                "containers": containers,
                **(spec or {}),
            },
        }

    return build
