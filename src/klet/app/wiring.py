"""Who talks to whom: builds every part of the agent from its ports. The only place that knows them all."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from klet.admission.checks import find_rejection
from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.app.container_ports import ContainerPorts, PodDirectoryFiles, PodHoldings, build_planner
from klet.app.pod_fates import CachedPods, LedgerFates
from klet.app.settings import AgentSettings
from klet.app.volumes import NodeVolumes, PodVolumes
from klet.cri.events import EventSource
from klet.cri.port import ImageService, RuntimeService
from klet.host.http_client import HttpClient
from klet.images.manager import ImageManager
from klet.images.pull_backoff import MissingImage, PullBackoff
from klet.model.causes import CauseId, CauseRecorder
from klet.model.halts import PodHalts
from klet.model.memory import AgentMemory
from klet.model.pods import uid_of
from klet.node.runtime_state import RuntimeChecks, RuntimeState
from klet.pleg.cache import RuntimeCache
from klet.pleg.pleg import Pleg, PlegSettings
from klet.pods.store import PodStore
from klet.probes.manager import ProbeManager
from klet.probes.prober import Prober
from klet.probes.results import ProbeResults
from klet.runtime.config.container_planner import ContainerFileMaker, ReadyImage
from klet.runtime.config.security import ImageUser
from klet.runtime.crash_backoff import CrashBackoff
from klet.runtime.errors import ImageMissing
from klet.runtime.executor import PodExecutor
from klet.runtime.gc import ContainerGc, ContainerRemover, Logs
from klet.runtime.hooks import HookRunner
from klet.runtime.kill.killer import PodKiller
from klet.runtime.kill.termination import LeftFiles
from klet.runtime.post_start import PostStart
from klet.runtime.reader import PodReader
from klet.runtime.restart import restarts_after
from klet.runtime.sandboxes import CgroupParents, PodDns, SandboxMaker
from klet.runtime.start_turns import StartTurns
from klet.runtime.starter import ContainerStarter, LogLinks, RestartCounts
from klet.status.board import StatusBoard
from klet.status.checkpoint import MemoryKeeper, MemoryStore
from klet.sync.admission import AdmittedWorkers
from klet.sync.beat import Beat
from klet.sync.cgroup_step import CgroupStep, PodCgroupKeeper, QosKeeper
from klet.sync.ground import PodGround
from klet.sync.housekeeping import (
    Housekeeping,
    HousekeepingCall,
    Leftovers,
    OrphanCgroups,
    PodMemories,
)
from klet.sync.ledger import WorkerLedger
from klet.sync.loop import ChangeSource, SyncLoop
from klet.sync.object_wakes import ObjectWakes
from klet.sync.pod_status import PodStatuses, StartFailures, StatusFacts
from klet.sync.pod_sync import PodSync
from klet.sync.probe_news import ProbeNews
from klet.sync.requeue import Pace
from klet.sync.workers import PodWorkers
from klet.volumes.keeper import VolumeKeeper
from klet.volumes.manager import VolumeManager
from klet.volumes.orphans import OrphanedPods


class Part(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None: ...


class PodFilesPort(ContainerFileMaker, RestartCounts, PodDirectoryFiles, Protocol):
    """Everything the agent asks of the pods' files."""


class LogFilesPort(LogLinks, Logs, Protocol):
    """Everything the agent asks of the containers' logs."""


class PodCgroupsPort(CgroupParents, PodCgroupKeeper, OrphanCgroups, Protocol):
    """Everything the agent asks of the pods' cgroups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside: real in the agent, fake in a simulation."""

    clock: Clock
    runtime: RuntimeService
    images: ImageService
    events: Sequence[EventSource]
    recorder: CauseRecorder
    changes: ChangeSource
    files: PodFilesPort
    left_files: LeftFiles
    logs: LogFilesPort
    http: HttpClient
    cgroups: PodCgroupsPort
    qos: QosKeeper
    dns: PodDns
    runtime_name: str
    node_ips: Callable[[], tuple[str, ...]]
    """The node's own addresses, as containers may ask for them."""
    randomness: random.Random
    containers: ContainerPorts
    volumes: NodeVolumes
    memory: AgentMemory
    """What an earlier life of the agent left."""
    memory_store: MemoryStore
    host_ips: Callable[[], tuple[str, ...]] = tuple
    """The same as statuses tell them: only where there is an API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The wired agent: its parts in the order of their start, and the boards that others read."""

    parts: tuple[Part, ...]
    pods: PodStore
    statuses: StatusBoard
    ledger: WorkerLedger
    cache: RuntimeCache
    pleg: Pleg
    runtime: RuntimeState
    workers: PodWorkers
    loop: SyncLoop


def build_agent(ports: Ports, settings: AgentSettings) -> Agent:
    """Build boards first, then the parts that read and write them."""
    pods = PodStore()
    board = StatusBoard(clock=ports.clock, restored=ports.memory.statuses)
    backoff = CrashBackoff(longest=settings.longest_crash_backoff, restored=ports.memory.delays)
    ledger = WorkerLedger()
    halts = PodHalts()
    cache = RuntimeCache()
    reader = PodReader(runtime=ports.runtime, files=ports.left_files)
    pleg = Pleg(
        reader=reader,
        sources=ports.events,
        cache=cache,
        clock=ports.clock,
        settings=PlegSettings(),
    )
    runtime = RuntimeState(pleg_error=pleg.health_error, clock=ports.clock)
    checks = RuntimeChecks(runtime=ports.runtime, state=runtime, recorder=ports.recorder, clock=ports.clock)
    hooks = HookRunner(commands=ports.runtime, http=ports.http, pods=reader, recorder=ports.recorder, clock=ports.clock)
    killer = PodKiller(runtime=ports.runtime, hooks=hooks, recorder=ports.recorder, clock=ports.clock)
    agent_started = ports.clock.now()
    results = ProbeResults()
    probes = ProbeManager(
        statuses=board,
        results=results,
        prober=Prober(runtime=ports.runtime, http=ports.http),
        restarts=restarts_after,
        recorder=ports.recorder,
        clock=ports.clock,
        randomness=ports.randomness,
        agent_started=agent_started,
    )
    statuses = PodStatuses(
        board=board,
        failures=StartFailures(),
        probes=results,
        probers=probes,
        recorder=ports.recorder,
        facts=StatusFacts(ports.runtime_name, agent_started, ports.host_ips),
        clock=ports.clock,
    )
    pulls = PullBackoff(restored=ports.memory.pulls)
    images = ImageManager(images=ports.images, backoff=pulls, recorder=ports.recorder, clock=ports.clock)
    manager = VolumeManager(
        plugins=ports.volumes.plugins,
        disk=ports.volumes.directories,
        recorder=ports.recorder,
        refresh=settings.resync,
        randomness=ports.randomness,
        clock=ports.clock,
    )
    volumes = PodVolumes(
        manager=manager,
        objects=ports.volumes.objects,
        orphans=OrphanedPods(volumes=manager, directories=ports.volumes.directories),
    )
    starter = _build_starter(ports, settings, EnsuredImages(images=images, halts=halts), volumes, backoff)
    sandboxes = SandboxMaker(
        runtime=ports.runtime,
        dns=ports.dns,
        cgroups=ports.cgroups,
        recorder=ports.recorder,
        clock=ports.clock,
        settings=settings.sandbox,
        runtime_classes=ports.containers.runtime_classes,
        user_namespaces=ports.containers.user_namespaces,
    )
    holdings = PodHoldings(
        files=ports.files,
        volumes=volumes,
        sub_paths=ports.containers.sub_paths,
        user_namespaces=ports.containers.user_namespaces,
    )
    cgroups = CgroupStep(cgroups=ports.cgroups, qos=ports.qos, ledger=ledger, killer=killer, recorder=ports.recorder)
    steps = PodSync(
        executor=_build_executor(ports, settings, sandboxes, starter, hooks, killer, halts),
        killer=killer,
        statuses=statuses,
        probes=probes,
        fresh=pleg,
        ground=PodGround(
            network=runtime, cgroups=cgroups, directories=holdings, volumes=volumes, recorder=ports.recorder
        ),
        halts=halts,
        recorder=ports.recorder,
    )
    calls = HousekeepingCall(sources_ready=ports.changes.all_ready, clock=ports.clock)
    workers = PodWorkers(
        steps=steps,
        statuses=pleg,
        ledger=ledger,
        halts=halts,
        recorder=ports.recorder,
        clock=ports.clock,
        pace=Pace(settings.resync, ports.randomness),
        on_finished=calls.finished,
    )
    housekeeping = Housekeeping(
        pods=pods,
        ledger=ledger,
        workers=workers,
        cache=cache,
        memories=PodMemories(
            forget=(statuses.forget, backoff.forget, sandboxes.forget, pulls.forget, probes.remove_pod),
            remembered=lambda: (
                board.all().keys() | {delay.uid for delay in backoff.all()} | {delay.uid for delay in pulls.all()}
            ),
            status_of=board.get,
        ),
        leftovers=Leftovers(
            killer=killer, files=holdings, links=ports.logs, cgroups=ports.cgroups, recorder=ports.recorder
        ),
        call=calls,
        clock=ports.clock,
    )

    async def until_runtime_well() -> None:
        await pleg.until_relisted()
        await runtime.until_well()

    admitted = AdmittedWorkers(
        workers=workers,
        pods=pods,
        ledger=ledger,
        remembers=lambda uid: board.get(uid) is not None,
        admission=find_rejection,
        reject=statuses.reject,
        recorder=ports.recorder,
    )
    loop = SyncLoop(
        changes=ports.changes,
        pods=pods,
        workers=admitted,
        cache=cache,
        probe_news=ProbeNews(probes=results, pods=pods, statuses=statuses, workers=admitted),
        beat=Beat(until_runtime_well=until_runtime_well, clock=ports.clock, resync=settings.resync),
        housekeeping=calls.ask,
        recorder=ports.recorder,
    )
    gc = ContainerGc(
        runtime=ports.runtime,
        remover=ContainerRemover(runtime=ports.runtime, killer=killer, logs=ports.logs),
        logs=ports.logs,
        fates=LedgerFates(ledger=ledger, sources_ready=ports.changes.all_ready),
        seen=CachedPods(cache=cache),
        recorder=ports.recorder,
        clock=ports.clock,
        policy=settings.gc,
    )
    memory = MemoryKeeper(store=ports.memory_store, statuses=board, delays=backoff, pulls=pulls, clock=ports.clock)
    keeper = VolumeKeeper(objects=(ports.volumes.objects, ports.volumes.trust), volumes=manager)
    wakes = ObjectWakes(objects=ports.volumes.objects, pods=pods, statuses=board, workers=workers)
    return Agent(
        parts=(memory, pleg, checks, manager, keeper, workers, probes, housekeeping, gc, wakes, loop),
        pods=pods,
        statuses=board,
        ledger=ledger,
        cache=cache,
        pleg=pleg,
        runtime=runtime,
        workers=workers,
        loop=loop,
    )


def _build_starter(
    ports: Ports, settings: AgentSettings, images: "EnsuredImages", volumes: PodVolumes, backoff: CrashBackoff
) -> ContainerStarter:
    return ContainerStarter(
        runtime=ports.runtime,
        images=images,
        counts=ports.files,
        planner=build_planner(
            ports.containers,
            files=ports.files,
            volumes=volumes,
            node_ips=ports.node_ips,
            settings=settings.container,
        ),
        links=ports.logs,
        recorder=ports.recorder,
        clock=ports.clock,
        backoff=backoff,
    )


def _build_executor(
    ports: Ports,
    settings: AgentSettings,
    sandboxes: SandboxMaker,
    starter: ContainerStarter,
    hooks: HookRunner,
    killer: PodKiller,
    halts: PodHalts,
) -> PodExecutor:
    return PodExecutor(
        runtime=ports.runtime,
        remover=ContainerRemover(runtime=ports.runtime, killer=killer, logs=ports.logs),
        sandboxes=sandboxes,
        starter=starter,
        post_start=PostStart(hooks=hooks, killer=killer, recorder=ports.recorder),
        killer=killer,
        recorder=ports.recorder,
        turns=StartTurns(at_once=settings.parallel_starts, halts=halts, clock=ports.clock),
    )


class EnsuredImages:
    """The image manager, as the container starter wants it. A pod that is to stop no longer waits for an image."""

    def __init__(self, *, images: ImageManager, halts: PodHalts) -> None:
        self._images = images
        self._halts = halts

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> ReadyImage:
        work = self._images.ensure(pod, container, before_pull=before_pull, parent=parent)
        found = await self._halts.run(uid_of(pod), work)
        if isinstance(found, MissingImage):
            raise ImageMissing(found.reason, found.message, until=found.retry_at)
        return ReadyImage(ref=found.ref, user=ImageUser(uid=found.uid, name=found.username))
