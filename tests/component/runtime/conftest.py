"""A bench with everything between pod actions and the CRI, on the fake runtime and in virtual time."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.app.boards import build_boards
from klet.app.opening import standalone_objects
from klet.app.starting import build_runtime_parts
from klet.cri.client import CriClient
from klet.errors import KletError
from klet.host.errors import HostError
from klet.host.http_response import HttpResponse
from klet.host.listening import HeldPort, HostPort
from klet.journal.records import CauseQuery
from klet.model.causes import CauseId
from klet.model.http_get import HttpGet
from klet.model.images import ImageUser, MissingImage, PresentImage
from klet.model.network import DnsConfig
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.model.saved_state import SavedState
from klet.model.volumes import HostVolume
from klet.node.capacity import AllocatableResources
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.state import CpuState
from klet.resources.pinning import PinnedContainers
from klet.runtime.actions import PodActions, compute_pod_actions
from klet.runtime.config.container_config import ContainerSettings
from klet.runtime.config.container_planner import ContainerFiles
from klet.runtime.config.sandbox_config import SandboxSettings
from klet.runtime.config.security import SecuritySettings
from klet.runtime.executor import SyncOutcome
from klet.simulation.fake_host import LOGS, MemoryFiles
from klet.simulation.node import DrivenPodSource, SimulatedNode, simulated_settings
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime, MemorySink, Script
from klet.testing.fake_runtime.machine import CallRecord
from klet.testing.fake_runtime.world import Features
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri


class NothingSaved:
    """Saves nothing: no test here restarts the agent."""

    async def save_now(self) -> None: ...


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
        self.devices: dict[str, HostVolume] = {}

    def of_pod(self, uid: PodUID) -> dict[str, HostVolume]:
        assert uid
        return {**self.devices, **{name: HostVolume(path) for name, path in self.paths.items()}}


class Images:
    """One image, unless `missing` says why there is none."""

    def __init__(self) -> None:
        self.missing: MissingImage | None = None
        self.missing_volume: MissingImage | None = None
        self.asked: list[tuple[str, str]] = []
        self.handlers: list[str] = []
        """For which of the runtime's handlers."""

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        sandbox: cri.PodSandboxConfig,
        handler: str = "",
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> PresentImage | MissingImage:
        assert sandbox.metadata.uid == pod.metadata.uid
        self.asked.append((container.name, container.image))
        self.handlers.append(handler)
        missing = self.missing if container.name else self.missing_volume
        return missing or PresentImage(container.image, ImageUser(uid=1000))


class Dns:
    """A fixed configuration, unless it is broken."""

    def __init__(self) -> None:
        self.broken: KletError | None = None

    async def config_for(self, pod: Pod) -> DnsConfig:
        if self.broken is not None:
            raise self.broken
        return DnsConfig(("10.0.0.10",))


class Server:
    """Answers hooks as configured: each request takes a moment, and may fail."""

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
        names_image_handlers: bool = False,
    ) -> None:
        self.runtime = runtime
        self.client = client
        self.clock = clock
        self.sink = sink
        machine = SimulatedNode(clock=clock, runtime=runtime, files=MemoryFiles(sink=sink))
        self.journal, self.logs, self.mappings = machine.journal, machine.logs, machine.files.mappings
        self.files, self.volumes, self.images, self.dns = Files(), Volumes(), Images(), Dns()
        self.http, self.host_ports = Server(), HeldPorts()
        ports = machine.build_ports(client, DrivenPodSource(), seed=1, objects=standalone_objects({"quick": "crun"}))
        containers = replace(
            ports.containers,
            resources=AllocatableResources(expected={"cpu": Quantity.parse("4")}),
            host_ports=self.host_ports,
        )
        ports = replace(
            ports,
            files=self.files,
            dns=self.dns,
            http=self.http,
            containers=containers,
            node_ips=lambda: ("192.168.0.1",),
        )
        settings = replace(
            simulated_settings(2, longest_backoff=longest_backoff),
            container=ContainerSettings(security=SecuritySettings()),
            sandbox=SandboxSettings(logs=LOGS, names_image_handlers=names_image_handlers),
        )
        boards = build_boards(settings, SavedState(), clock, ports.metrics.agent)
        self.backoff = boards.backoff
        self.ports = ports.containers
        parts = build_runtime_parts(
            ports,
            settings,
            boards,
            volumes=self.volumes,
            images=self.images,
            pins=PinnedContainers(managers=()),
            quotas=CpuBoard(policy=None, state=CpuState(), lifts_quota=True),
            state=NothingSaved(),
        )
        self.reader, self.hooks, self.killer, self.remover = parts.reader, parts.hooks, parts.killer, parts.remover
        self.starter, self.sandboxes, self.executor = parts.starter, parts.sandboxes, parts.executor

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
        names_image_handlers: bool = False,
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
                bench = RuntimeBench(
                    runtime,
                    client,
                    clock,
                    sink=sink,
                    longest_backoff=longest_backoff,
                    names_image_handlers=names_image_handlers,
                )
                await test(bench)

        run_virtual(main())

    return run
