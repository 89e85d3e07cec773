"""A bench with everything between pod actions and the CRI, on the fake runtime and in virtual time."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.app.container_ports import build_planner
from klet.app.simulation.containers import simulated_container_ports
from klet.app.simulation.memory import LOGS, MemoryLeftFiles, MemoryLogs, MemoryMappings, MemoryVolumes
from klet.cri.client import CriClient
from klet.errors import KletError
from klet.host.errors import HostError
from klet.host.http_response import HttpResponse
from klet.host.listening import HeldPort, HostPort
from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.model.causes import CauseId
from klet.model.halts import PodHalts
from klet.model.http_get import HttpGet
from klet.model.network import DnsConfig
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.runtime.actions import PodActions, compute_pod_actions
from klet.runtime.config.container_config import ContainerSettings
from klet.runtime.config.container_planner import ContainerFiles, ReadyImage
from klet.runtime.config.mounts import HostVolume
from klet.runtime.config.sandbox_config import SandboxSettings
from klet.runtime.config.security import ImageUser, SecuritySettings
from klet.runtime.crash_backoff import CrashBackoff
from klet.runtime.environment.env_sources import KnownResources
from klet.runtime.errors import StartError
from klet.runtime.executor import PodExecutor, SyncOutcome
from klet.runtime.gc import ContainerRemover
from klet.runtime.hooks import HookRunner
from klet.runtime.kill.killer import PodKiller
from klet.runtime.post_start import PostStart
from klet.runtime.reader import PodReader
from klet.runtime.runtime_class import KnownRuntimeClasses
from klet.runtime.sandboxes import SandboxMaker, SandboxSources
from klet.runtime.start_turns import StartTurns
from klet.runtime.starter import ContainerStarter
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime, MemorySink, Script
from klet.testing.fake_runtime.machine import CallRecord
from klet.testing.fake_runtime.world import Features
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual


class Files:
    """Paths without files. `broken` makes the next preparation fail."""

    def __init__(self) -> None:
        self.broken = False
        self.restart_count = 0

    async def prepare_container(
        self, pod: Pod, container: Container | EphemeralContainer, *, pod_ips: tuple[str, ...]
    ) -> ContainerFiles:
        if self.broken:
            raise HostError("cannot make /pods/x: No space left on device")
        return ContainerFiles(
            hosts_file=f"/hosts/{'+'.join(pod_ips)}",
            termination_log=f"/pods/{container.name}",
        )

    async def next_restart_count(self, pod: Pod, container: str) -> int:
        return self.restart_count


class Volumes:
    """Volumes by path, the same for every pod."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}

    def of_pod(self, uid: PodUID) -> dict[str, HostVolume]:
        assert uid
        return {name: HostVolume(path) for name, path in self.paths.items()}


class Images:
    """One image, unless `missing` says why there is none."""

    def __init__(self) -> None:
        self.missing: StartError | None = None
        self.missing_volume: StartError | None = None
        self.asked: list[tuple[str, str]] = []

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> ReadyImage:
        self.asked.append((container.name, container.image))
        missing = self.missing if container.name else self.missing_volume
        if missing is not None:
            raise missing
        return ReadyImage(ref=container.image, user=ImageUser(uid=1000))


class Dns:
    """A fixed configuration, unless it is broken."""

    def __init__(self) -> None:
        self.broken: KletError | None = None

    async def config_for(self, pod: Pod) -> DnsConfig:
        if self.broken is not None:
            raise self.broken
        return DnsConfig(("10.0.0.10",))


class Server:
    """Answers hooks as it is told: each request takes a moment, and may fail."""

    def __init__(self) -> None:
        self.requests: list[HttpGet] = []
        self.failures: list[KletError | None] = []

    async def get(self, request: HttpGet, *, timeout: timedelta | None) -> HttpResponse:
        assert timeout is None
        self.requests.append(request)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return HttpResponse(500)


class HeldPorts:
    """Ports of the host that somebody holds."""

    def __init__(self) -> None:
        self.held: dict[int, str] = {}
        self.asked: list[tuple[HostPort, ...]] = []

    async def holders(self, ports: Sequence[HostPort]) -> tuple[HeldPort, ...]:
        self.asked.append(tuple(ports))
        return tuple(HeldPort(port, self.held[port.number]) for port in ports if port.number in self.held)


class Cgroups:
    def parent_of(self, pod: Pod) -> str:
        return f"/kubepods/pod{pod.metadata.uid}"


class RuntimeBench:
    """Starter, killer and executor over one fake runtime."""

    def __init__(
        self,
        runtime: FakeRuntime,
        client: CriClient,
        clock: LoopClock,
        *,
        sink: MemorySink,
        longest_backoff: timedelta,
    ) -> None:
        self.runtime = runtime
        self.client = client
        self.clock = clock
        self.journal = MemoryJournal(clock=clock)
        self.files, self.volumes, self.images, self.dns = Files(), Volumes(), Images(), Dns()
        self.sink = sink
        self.logs = MemoryLogs(sink=sink)
        self.reader = PodReader(runtime=client, files=MemoryLeftFiles(sink=sink))
        self.http = Server()
        self.hooks = HookRunner(commands=client, http=self.http, pods=self.reader, recorder=self.journal, clock=clock)
        self.killer = PodKiller(runtime=client, hooks=self.hooks, recorder=self.journal, clock=clock)
        self.remover = ContainerRemover(runtime=client, killer=self.killer, logs=self.logs)
        self.halts = PodHalts()
        self.backoff = CrashBackoff(longest=longest_backoff)
        self.mappings = MemoryMappings()
        ports = simulated_container_ports(
            client, mappings=self.mappings, volumes=MemoryVolumes(), randomness=random.Random(1)
        )
        self.ports = replace(
            ports,
            runtime_classes=KnownRuntimeClasses(handlers={"quick": "crun"}),
            resources=KnownResources(allocatable={"cpu": Quantity.parse("4")}),
        )
        self.starter = ContainerStarter(
            runtime=client,
            images=self.images,
            counts=self.files,
            planner=build_planner(
                self.ports,
                files=self.files,
                volumes=self.volumes,
                node_ips=lambda: ("192.168.0.1",),
                settings=ContainerSettings(security=SecuritySettings()),
            ),
            links=self.logs,
            recorder=self.journal,
            clock=clock,
            backoff=self.backoff,
        )
        self.host_ports = HeldPorts()
        self.sandboxes = SandboxMaker(
            runtime=client,
            sources=SandboxSources(
                dns=self.dns,
                cgroups=Cgroups(),
                runtime_classes=self.ports.runtime_classes,
                user_namespaces=self.ports.user_namespaces,
                host_ports=self.host_ports,
            ),
            recorder=self.journal,
            clock=clock,
            settings=SandboxSettings(logs=LOGS),
        )
        self.executor = PodExecutor(
            runtime=client,
            remover=self.remover,
            sandboxes=self.sandboxes,
            starter=self.starter,
            post_start=PostStart(hooks=self.hooks, killer=self.killer, recorder=self.journal),
            killer=self.killer,
            recorder=self.journal,
            turns=StartTurns(at_once=2, halts=self.halts, clock=clock),
        )

    async def status(self, pod: Pod) -> PodRuntimeStatus:
        return await self.reader.read(uid_of(pod))

    async def sync(self, pod: Pod) -> SyncOutcome:
        """Compute what the pod needs now and do it."""
        status = await self.status(pod)
        return await self.carry_out(pod, status, compute_pod_actions(pod, status, probes={}))

    async def carry_out(self, pod: Pod, status: PodRuntimeStatus, actions: PodActions) -> SyncOutcome:
        return await self.executor.carry_out(pod, status, actions, parent=None)

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    async def events(self) -> list[tuple[str, str]]:
        return [(cause.finding.decision, cause.finding.message) for cause in await self.journal.find(CauseQuery())]

    def calls(self, *rpcs: str) -> list[CallRecord]:
        return [call for call in self.runtime.calls if call.rpc in rpcs]

    def called(self) -> list[str]:
        """The calls that change something, in their order."""
        changing = ("Run", "Stop", "Remove", "Create", "Start")
        return [call.rpc for call in self.runtime.calls if call.rpc.startswith(changing)]


OnBench = Callable[..., None]


@pytest.fixture
def on_bench() -> OnBench:
    """Run a test in virtual time, on a bench whose containers live as the script says."""

    def run(
        test: Callable[[RuntimeBench], Awaitable[None]],
        script: Script | None = None,
        *,
        longest_backoff: timedelta = timedelta(seconds=300),
        features: Features | None = None,
    ) -> None:
        async def main() -> None:
            clock = LoopClock(epoch=EPOCH)
            sink = MemorySink()
            runtime = FakeRuntime(
                start=EPOCH,
                script=script or Script(),
                images=(FakeImage(IMAGE),),
                sink=sink,
                features=features or Features(),
            )
            async with run_in_process(runtime, clock=clock) as client:
                await test(RuntimeBench(runtime, client, clock, sink=sink, longest_backoff=longest_backoff))

        run_virtual(main())

    return run
