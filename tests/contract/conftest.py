"""One bench, three runtimes: the fake over gRPC and in process, and containerd. A difference is a bug of the fake.

Time on the fakes moves only inside `bench.passing(…)`, and at most `SOON`: what should end in a case ends within that,
what should not runs for a thousand seconds.
"""

import asyncio
import itertools
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from klet.aio.clock import SystemClock
from klet.cri.client import CriClient, connect
from klet.cri.errors import CriError
from klet.host.images import ImageConfig, build_image, file
from klet.testing.clock import ManualClock
from klet.testing.containerd import PrivateContainerd, add_image, remove_pods, run_containerd, why_impossible
from klet.testing.cri_server import EVENTS_SERVICE, serve_cri
from klet.testing.fake_runtime import FakeImage, FakeRuntime, FileSink, MemorySink, Script
from klet.testing.fake_runtime.shell import shell_exec, shell_life
from klet.testing.in_process import run_in_process
from klet.testing.leftovers import remove_abandoned
from klet.wire import containerd_events_pb2 as containerd_events
from klet.wire import containerd_images_pb2 as containerd_images
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_events_service_pb2 import PublishRequest, SubscribeRequest
from klet.wire.containerd_types_pb2 import Envelope
from klet.wire.methods import method_of

BUSYBOX = "klet.local/busybox:1"
SOON = timedelta(seconds=5)
A_LITTLE = timedelta(milliseconds=5)
TIMEOUT = timedelta(seconds=60)
BASE = Path(tempfile.gettempdir()) / "klet-containerd"
SUBSCRIBE = method_of(EVENTS_SERVICE, "Subscribe", SubscribeRequest, Envelope)
# Nobody relies on these; the fake does not publish all of them.
UNINTERESTING = ("/snapshot/", "/containers/update", "/images/update")


@dataclass
class Seen:
    """One event as it came."""

    topic: str
    id: str
    body: Message | None
    envelope: Envelope


class Recorder:
    """All events since the beginning of the case."""

    def __init__(self):
        self.seen: list[Seen] = []
        self.ready = asyncio.Event()
        self._news = asyncio.Condition()

    async def run(self, client: CriClient):
        async for envelope in client.runtime.stream(SUBSCRIBE, SubscribeRequest()):
            self.ready.set()
            kind = envelope.event.type_url.rpartition(".")[2]
            body_class = getattr(containerd_events, kind, None) or getattr(containerd_images, kind, None)
            body = body_class.FromString(envelope.event.value) if body_class else None
            id_ = getattr(body, "container_id", None) or getattr(body, "id", "") or getattr(body, "name", "")
            if not envelope.topic.startswith(UNINTERESTING) and body is not None:
                self.seen.append(Seen(envelope.topic, id_, body, envelope))
                async with self._news:
                    self._news.notify_all()

    def topics(self, id_: str) -> list[str]:
        return [event.topic for event in self.seen if event.id == id_]

    async def until(self, topic: str, id_: str) -> Seen:
        def find():
            return next((event for event in self.seen if (event.topic, event.id) == (topic, id_)), None)

        async with self._news:
            return await self._news.wait_for(find)


@dataclass
class Pod:
    id: str
    config: pb.PodSandboxConfig


@dataclass
class Bench:
    """What the cases work with, whatever the runtime is."""

    client: CriClient
    logs: Path
    events: Recorder
    clock: ManualClock | None = None
    runtime: FakeRuntime | None = None
    sink: MemorySink | None = None
    daemon: PrivateContainerd | None = None
    cgroup_parent: str = "/klet-contract"
    names: "itertools.count[int]" = field(default_factory=itertools.count)

    async def pod(self, change: Callable[[pb.PodSandboxConfig], None] = lambda _: None, handler: str = "") -> Pod:
        config = self.sandbox_config()
        change(config)
        answer = await self.client.run_pod_sandbox(pb.RunPodSandboxRequest(config=config, runtime_handler=handler))
        return Pod(answer.pod_sandbox_id, config)

    def sandbox_config(self, attempt: int = 0) -> pb.PodSandboxConfig:
        name = f"pod{next(self.names)}"
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, namespace="contract", uid=f"{name}-uid", attempt=attempt),
            log_directory=str(self.logs / name),
            labels={"app": name},
            annotations={"note": "kept"},
        )
        config.linux.cgroup_parent = self.cgroup_parent
        config.linux.security_context.namespace_options.pid = pb.CONTAINER
        return config

    async def create(
        self,
        pod: Pod,
        *command: str,
        name: str = "main",
        attempt: int = 0,
        image: str = BUSYBOX,
        change: Callable[[pb.ContainerConfig], None] = lambda _: None,
    ) -> str:
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt),
            image=pb.ImageSpec(image=image),
            command=command or ["sleep", "1000"],
            log_path=f"{name}/{attempt}.log",
            labels={"container": name},
            annotations={"note": "kept"},
        )
        config.linux.security_context.namespace_options.pid = pb.CONTAINER
        change(config)
        request = pb.CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        return (await self.client.create_container(request)).container_id

    async def start(self, container: str) -> None:
        await self.client.start_container(pb.StartContainerRequest(container_id=container))

    async def run(self, pod: Pod, *command: str, **options) -> str:
        container = await self.create(pod, *command, **options)
        await self.start(container)
        return container

    async def run_to_end(self, pod: Pod, *command: str, **options) -> pb.ContainerStatus:
        return await self.until_exited(await self.run(pod, *command, **options))

    async def until_exited(self, container: str) -> pb.ContainerStatus:
        """Wait for the event; the status may lag it a little, so read until they agree."""
        await self.passing(self.events.until("/tasks/exit", container))
        while (status := await self.status(container)).state == pb.CONTAINER_RUNNING:
            await SystemClock().sleep(A_LITTLE)
        return status

    async def until_reason(self, container: str, reason: str) -> pb.ContainerStatus:
        async def read():
            while (status := await self.status(container)).reason != reason:
                await SystemClock().sleep(A_LITTLE)
            return status

        return await self.passing(read())

    async def status(self, container: str) -> pb.ContainerStatus:
        return (await self.client.container_status(pb.ContainerStatusRequest(container_id=container))).status

    async def sandbox_status(self, pod: Pod) -> pb.PodSandboxStatus:
        return (await self.client.pod_sandbox_status(pb.PodSandboxStatusRequest(pod_sandbox_id=pod.id))).status

    async def stop(self, container: str, grace: int = 0) -> None:
        await self.passing(self.client.stop_container(pb.StopContainerRequest(container_id=container, timeout=grace)))

    async def remove(self, container: str) -> None:
        await self.passing(self.client.remove_container(pb.RemoveContainerRequest(container_id=container)))

    async def stop_pod(self, pod: Pod) -> None:
        await self.passing(self.client.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=pod.id)))

    async def remove_pod(self, pod: Pod) -> None:
        await self.passing(self.client.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=pod.id)))

    async def exec(self, container: str, *command: str, timeout: int = 0) -> pb.ExecSyncResponse:
        request = pb.ExecSyncRequest(container_id=container, cmd=command, timeout=timeout)
        return await self.passing(self.client.exec_sync(request))

    async def kill_pause(self, pod: Pod) -> None:
        """The sandbox's own process dies."""
        if self.runtime is not None:
            self.runtime.kill_sandbox(pod.id)
        else:
            request = pb.PodSandboxStatusRequest(pod_sandbox_id=pod.id, verbose=True)
            info = json.loads((await self.client.pod_sandbox_status(request)).info["info"])
            os.kill(info["pid"], signal.SIGKILL)
        await self.events.until("/tasks/exit", pod.id)
        while (await self.sandbox_status(pod)).state == pb.SANDBOX_READY:
            await SystemClock().sleep(A_LITTLE)

    async def passing(self, work):
        """Wait for it while time passes: by itself, or pushed on to the next thing that is due soon."""
        if self.clock is None:
            return await asyncio.wait_for(work, TIMEOUT.total_seconds())
        limit = self.clock.now() + SOON
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=0.01)
            due = self.clock.next_wake()
            if not task.done() and due is not None and due <= limit:
                self.clock.advance_to(due)
        return task.result()

    async def import_image(self, name: str) -> None:
        if self.runtime is not None:
            self.runtime.load_image(FakeImage(name))
        else:
            data = build_image(name=name, layers=[[file("name", name)]], config=ImageConfig(command=["/none"]))
            await add_image(self.daemon, self.client, name=name, data=data, clock=SystemClock())

    def log(self, path: str) -> str | None:
        """The content of a log file, or None."""
        if self.sink is not None:
            data = self.sink.read(path)
            return None if data is None else data.decode()
        return Path(path).read_text() if Path(path).exists() else None

    def move(self, old: str, new: str) -> None:
        if self.sink is not None:
            self.sink.rename(old, new)
        else:
            Path(old).rename(new)

    async def until_log(self, path: str, lines: int) -> list[str]:
        """Wait until the log has that many lines; they are written without any event."""

        async def read():
            while len(content := (self.log(path) or "").splitlines()) < lines:
                await SystemClock().sleep(A_LITTLE)
            return content

        return await self.passing(read())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def containerd_of_the_session():
    remove_abandoned(BASE)
    async with run_containerd(BASE / f"{os.getpid()}-contract") as daemon:
        yield daemon


@pytest.fixture(
    params=[
        pytest.param("grpc", id="fake over gRPC"),
        pytest.param("in process", id="fake in process"),
        pytest.param("containerd", id="containerd", marks=(pytest.mark.containerd, pytest.mark.root)),
    ]
)
def kind(request):
    return request.param


@pytest.fixture
def daemon(kind, request):
    if kind != "containerd":
        return None
    if reason := why_impossible():
        pytest.skip(reason)
    return request.getfixturevalue("containerd_of_the_session")


@pytest.fixture
async def bench(kind, daemon, tmp_path):
    if daemon is not None:
        async with connect(runtime_endpoint=daemon.endpoint, timeout=TIMEOUT) as client:
            bench = Bench(client, tmp_path, Recorder(), daemon=daemon, cgroup_parent=daemon.cgroup_parent)
            async with recording(bench, lambda: publish(daemon.endpoint)):
                yield bench
            await clean_up(client)
        return
    clock = ManualClock()
    sink = MemorySink() if kind == "in process" else FileSink()
    images = tuple(FakeImage(name, size=2 << 20) for name in (BUSYBOX, "klet.local/pause:1"))
    script = Script(lives=shell_life, execs=shell_exec)
    runtime = FakeRuntime(start=clock.now(), script=script, sink=sink, images=images)
    if isinstance(sink, MemorySink):
        async with run_in_process(runtime, clock=clock) as client:
            bench = Bench(client, tmp_path, Recorder(), clock=clock, runtime=runtime, sink=sink)

            async def publish_here():
                runtime.publish("/contract/ready", AnyMessage(type_url="none"))

            async with recording(bench, publish_here):
                yield bench
        return
    async with (
        serve_cri(runtime, clock=clock, socket=tmp_path / "cri.sock") as endpoint,
        connect(runtime_endpoint=endpoint, timeout=TIMEOUT) as client,
    ):
        bench = Bench(client, tmp_path, Recorder(), clock=clock, runtime=runtime)
        async with recording(bench, lambda: publish(endpoint)):
            yield bench
    sink.close_all()


async def clean_up(client: CriClient) -> None:
    """What is just ending by itself, containerd refuses to stop; the next attempt finds it ended."""
    for attempts_left in reversed(range(20)):
        try:
            await remove_pods(client, clock=SystemClock())
        except CriError:
            if not attempts_left:
                raise
            await SystemClock().sleep(10 * A_LITTLE)
        else:
            return


@asynccontextmanager
async def recording(bench: Bench, publish: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Subscribed for certain: an event of our own has come back."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.events.run(bench.client))
        ready = group.create_task(bench.events.ready.wait())
        while not ready.done():
            await asyncio.wait({ready}, timeout=A_LITTLE.total_seconds())
            await publish()
        yield
        task.cancel()


async def publish(endpoint: str) -> None:
    request = PublishRequest(topic="/contract/ready", event=AnyMessage(type_url="none"))
    async with grpc.aio.insecure_channel(
        endpoint.replace("unix://", "unix:"), options=[("grpc.default_authority", "localhost")]
    ) as channel:
        send = channel.unary_unary(
            f"/{EVENTS_SERVICE.full_name}/Publish", request_serializer=PublishRequest.SerializeToString
        )
        await send(request, metadata=(("containerd-namespace", "k8s.io"),))
