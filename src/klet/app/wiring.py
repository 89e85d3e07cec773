"""Who talks to whom: builds every part of the agent from its ports. The only place that knows them all."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.app.pod_fates import CachedPods, LedgerFates
from klet.app.settings import AgentSettings
from klet.cri.events import EventSource
from klet.cri.port import ImageService, RuntimeService
from klet.host.http_client import HttpClient
from klet.images.manager import ImageManager, MissingImage
from klet.model.causes import CauseId, CauseRecorder
from klet.model.memory import AgentMemory
from klet.pleg.cache import RuntimeCache
from klet.pleg.pleg import Pleg, PlegSettings
from klet.pods.store import PodStore
from klet.probes.manager import ProbeManager
from klet.probes.prober import Prober
from klet.probes.results import ProbeResults
from klet.runtime.crash_backoff import CrashBackoff
from klet.runtime.errors import StartError
from klet.runtime.executor import CgroupParents, PodDns, PodExecutor
from klet.runtime.gc import ContainerGc, ContainerRemover, Logs
from klet.runtime.hooks import HookRunner
from klet.runtime.killer import PodKiller
from klet.runtime.post_start import PostStart
from klet.runtime.reader import PodReader
from klet.runtime.restart import restarts_after
from klet.runtime.security import ImageUser
from klet.runtime.starter import ContainerStarter, LogLinks, ReadyImage, StartFiles
from klet.runtime.termination import LeftFiles
from klet.status.board import StatusBoard
from klet.status.checkpoint import MemoryKeeper, MemoryStore
from klet.sync.cgroup_step import CgroupStep, PodCgroupKeeper, QosKeeper
from klet.sync.housekeeping import (
    Housekeeping,
    HousekeepingCall,
    Leftovers,
    OrphanCgroups,
    OrphanDirectories,
    PodMemories,
)
from klet.sync.ledger import WorkerLedger
from klet.sync.loop import ChangeSource, SyncLoop
from klet.sync.pod_status import PodStatuses, StartFailures
from klet.sync.pod_sync import PodDirectories, PodSync
from klet.sync.workers import PodWorkers


class Part(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None: ...


class PodFilesPort(StartFiles, PodDirectories, OrphanDirectories, Protocol):
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
    node_ips: tuple[str, ...]
    randomness: random.Random
    memory: AgentMemory
    """What an earlier life of the agent left."""
    memory_store: MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The wired agent: its parts in the order of their start, and the boards that others read."""

    parts: tuple[Part, ...]
    pods: PodStore
    statuses: StatusBoard
    ledger: WorkerLedger
    cache: RuntimeCache
    pleg: Pleg


def build_agent(ports: Ports, settings: AgentSettings) -> Agent:
    """Build boards first, then the parts that read and write them."""
    pods = PodStore()
    board = StatusBoard(clock=ports.clock, restored=ports.memory.statuses)
    backoff = CrashBackoff(longest=settings.longest_crash_backoff, restored=ports.memory.delays)
    ledger = WorkerLedger()
    cache = RuntimeCache()
    reader = PodReader(runtime=ports.runtime, files=ports.left_files)
    pleg = Pleg(
        reader=reader,
        sources=ports.events,
        cache=cache,
        clock=ports.clock,
        settings=PlegSettings(),
    )
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
        runtime_name=ports.runtime_name,
        agent_started=agent_started,
    )
    images = ImageManager(images=ports.images, recorder=ports.recorder, clock=ports.clock)
    starter = _build_starter(ports, settings, images, backoff)
    steps = PodSync(
        executor=_build_executor(ports, settings, starter, hooks, killer),
        killer=killer,
        statuses=statuses,
        probes=probes,
        fresh=pleg,
        directories=ports.files,
        cgroups=CgroupStep(cgroups=ports.cgroups, qos=ports.qos, ledger=ledger, killer=killer, recorder=ports.recorder),
        recorder=ports.recorder,
    )
    calls = HousekeepingCall()
    workers = PodWorkers(
        steps=steps,
        statuses=pleg,
        ledger=ledger,
        recorder=ports.recorder,
        clock=ports.clock,
        resync=settings.resync,
        randomness=ports.randomness,
        on_finished=calls.finished,
    )
    housekeeping = Housekeeping(
        pods=pods,
        ledger=ledger,
        workers=workers,
        cache=cache,
        memories=PodMemories(
            forget=(statuses.forget, backoff.forget, images.forget, probes.remove_pod),
            remembered=lambda: board.all().keys() | {delay.uid for delay in backoff.all()},
        ),
        leftovers=Leftovers(
            killer=killer, files=ports.files, links=ports.logs, cgroups=ports.cgroups, recorder=ports.recorder
        ),
        sources_ready=ports.changes.all_ready,
        call=calls,
        clock=ports.clock,
    )
    loop = SyncLoop(
        changes=ports.changes,
        pods=pods,
        workers=workers,
        cache=cache,
        probes=results,
        until_runtime_seen=pleg.until_relisted,
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
    memory = MemoryKeeper(store=ports.memory_store, statuses=board, delays=backoff, clock=ports.clock)
    return Agent(
        parts=(memory, pleg, workers, probes, housekeeping, gc, loop),
        pods=pods,
        statuses=board,
        ledger=ledger,
        cache=cache,
        pleg=pleg,
    )


def _build_starter(
    ports: Ports, settings: AgentSettings, images: ImageManager, backoff: CrashBackoff
) -> ContainerStarter:
    return ContainerStarter(
        runtime=ports.runtime,
        images=EnsuredImages(images=images),
        files=ports.files,
        links=ports.logs,
        node_ips=ports.node_ips,
        recorder=ports.recorder,
        clock=ports.clock,
        settings=settings.container,
        backoff=backoff,
    )


def _build_executor(
    ports: Ports, settings: AgentSettings, starter: ContainerStarter, hooks: HookRunner, killer: PodKiller
) -> PodExecutor:
    return PodExecutor(
        runtime=ports.runtime,
        starter=starter,
        post_start=PostStart(hooks=hooks, killer=killer, recorder=ports.recorder),
        killer=killer,
        dns=ports.dns,
        cgroups=ports.cgroups,
        recorder=ports.recorder,
        settings=settings.sandbox,
        starts=asyncio.Semaphore(settings.parallel_starts),
    )


class EnsuredImages:
    """The image manager, as the container starter wants it."""

    def __init__(self, *, images: ImageManager) -> None:
        self._images = images

    async def ensure(
        self, pod: Pod, container: Container | EphemeralContainer, *, parent: CauseId | None
    ) -> ReadyImage:
        found = await self._images.ensure(pod, container, parent=parent)
        if isinstance(found, MissingImage):
            raise StartError(found.reason, found.message)
        return ReadyImage(ref=found.ref, user=ImageUser(uid=found.uid, name=found.username))
