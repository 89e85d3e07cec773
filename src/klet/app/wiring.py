"""Builds every part of the agent from its ports, and gives each the parts it needs. Only this module knows them all."""

from functools import partial

from msgspec import Struct

from klet.allocation.book import AllocationBook
from klet.app.admission import build_admission
from klet.app.boards import Boards, build_boards, remembered_pods
from klet.app.cgroup_opening import build_qos_repair
from klet.app.image_collection import build_image_collection
from klet.app.images import build_images
from klet.app.metrics import register_features, register_node_name
from klet.app.ports import Ports
from klet.app.resource_managers import build_placement, build_resource_managers, build_topology_reader
from klet.app.settings import AgentSettings
from klet.app.starting import build_plugin_manager, build_runtime_parts
from klet.app.summaries import build_disk_stats, build_summaries
from klet.host.cgroups.names import CgroupDriver, cgroup_path, parse_cgroupfs
from klet.images.board import ImageBoard
from klet.images.pull_meter import PullMeter
from klet.images.views import ImageViews
from klet.logs.rotation import LogManager
from klet.metrics import AgentMetrics
from klet.model.roles import Part
from klet.node.addresses import prefers_ipv6
from klet.node.first_contact import AfterFirstContact
from klet.node.metrics import register_contact
from klet.node.oom import OomWatcher
from klet.node.runtime_state import RuntimeChecks, RuntimeState
from klet.pleg.cache import RuntimeCache
from klet.pleg.metrics import register_pleg, register_running
from klet.pleg.pleg import Pleg, PlegSettings
from klet.pods.store import PodStore
from klet.probes.manager import ProbeManager
from klet.probes.metrics import CountedProber, register_probes
from klet.probes.prober import Prober
from klet.resources.names import pods_root
from klet.resources.view import TopologyReader
from klet.runtime.gc import ContainerGc, ContainerRemover
from klet.runtime.restart import comes_back
from klet.stats.collector import StatsCollector
from klet.stats.disk import NodeDisk
from klet.stats.provider import SummaryProvider
from klet.stats.sandbox_images import SandboxImages
from klet.status.board import StatusBoard
from klet.status.checkpoint import SavedStateKeeper
from klet.sync.admission import PodAdmission
from klet.sync.cgroup_step import CgroupStep
from klet.sync.counted import CountedAdmission, CountedSteps
from klet.sync.earlier_admissions import EarlierAdmissions
from klet.sync.fit import FitPreview
from klet.sync.housekeeping import Housekeeping, HousekeepingTrigger, Leftovers, PodMemories
from klet.sync.ledger import WorkerLedger
from klet.sync.loop import SyncLoop
from klet.sync.loop_monitor import SyncLoopMonitor
from klet.sync.metrics import (
    register_admission,
    register_housekeeping,
    register_pod_workers,
    register_pods,
    register_preparation,
    register_startups,
)
from klet.sync.object_waker import ObjectWaker
from klet.sync.pod_host_resources import PodHostResources
from klet.sync.pod_queries import PodQueries
from klet.sync.pod_status import PodStatuses, StartFailures, StatusFacts
from klet.sync.pod_sync import PodSync
from klet.sync.preparation import Preparation
from klet.sync.preparation_steps import DirectoryStep, NetworkStep, ObjectStep, PullSecretStep, VolumeStep
from klet.sync.probe_sync import ProbeSync
from klet.sync.rebooted_pods import RebootedPods
from klet.sync.requeue import ResyncSettings
from klet.sync.startups import PodStartups
from klet.sync.traced_steps import TracedSteps
from klet.sync.worker_roles import PodSteps
from klet.sync.workers import PodWorkers
from klet.volumes.build import ManagerPorts, build_manager
from klet.volumes.flex.probing import FlexWatcher
from klet.volumes.keeper import VolumeKeeper
from klet.volumes.manager import VolumeManager
from klet.volumes.migration.translate import translate_to_csi
from klet.volumes.orphans import OrphanedPods
from klet.volumes.pod_volumes import PodVolumes


class Agent(Struct, frozen=True, kw_only=True):
    """The wired agent: its parts in the order of their start, and the boards that others read."""

    parts: tuple[Part, ...]
    pods: PodStore
    allocations: AllocationBook
    statuses: StatusBoard
    ledger: WorkerLedger
    fit: FitPreview
    queries: PodQueries
    cache: RuntimeCache
    pleg: Pleg
    runtime: RuntimeState
    workers: PodWorkers
    volumes: VolumeManager
    loop: SyncLoop
    metrics: AgentMetrics
    stats: StatsCollector
    summaries: SummaryProvider
    disk: NodeDisk
    """What is on disks, for the summary."""
    pulls: PullMeter
    images: ImageBoard
    """Those that the runtime has, for the node's status."""
    image_views: ImageViews
    topology: TopologyReader
    """The machine, and who has what of it."""


def build_agent(ports: Ports, settings: AgentSettings) -> Agent:
    """Build boards first, then the parts that read and write them."""
    boards = build_boards(settings, ports.saved_state, ports.clock, ports.metrics.agent)
    register_running(boards.metrics, boards.cache)
    register_pods(boards.metrics, boards.pods, boards.ledger, boards.statuses)
    register_node_name(boards.metrics, settings.node_name)
    register_features(boards.metrics, settings.gates)
    register_contact(boards.metrics, ports.contact)
    manager, volumes = _build_volumes(ports, settings, boards)
    disks = build_disk_stats(ports, settings, boards, manager)
    images = build_images(ports, settings, boards)
    collection = build_image_collection(ports, settings, boards, images, disks.disk)
    saved_state = SavedStateKeeper(
        store=ports.saved_state_store,
        statuses=boards.statuses,
        delays=boards.backoff,
        pulls=boards.pulls,
        clock=ports.clock,
    )
    managers = build_resource_managers(ports, settings, boards)
    parts = build_runtime_parts(
        ports,
        settings,
        boards,
        volumes=volumes,
        images=collection.ensurer,
        pins=managers.pins,
        quotas=managers.cpus,
        state=saved_state,
    )
    killer = parts.killer
    pleg = Pleg(
        reader=parts.reader,
        sources=ports.events,
        cache=boards.cache,
        clock=ports.clock,
        settings=PlegSettings(),
        metrics=register_pleg(boards.metrics),
    )
    runtime = RuntimeState(pleg_error=pleg.health_error, clock=ports.clock)
    checks = RuntimeChecks(runtime=ports.runtime, state=runtime, recorder=ports.recorder, clock=ports.clock)
    probes, statuses = _build_reporting(ports, settings, boards)
    host_resources = PodHostResources(
        files=ports.files,
        volumes=volumes,
        sub_paths=ports.containers.sub_paths,
        user_namespaces=ports.containers.user_namespaces,
    )
    cgroups = CgroupStep(
        cgroups=ports.cgroups,
        qos=ports.qos,
        allocations=boards.allocations,
        quotas=managers.cpus,
        ledger=boards.ledger,
        killer=killer,
        recorder=ports.recorder,
    )
    steps: PodSteps = PodSync(
        executor=parts.executor,
        killer=killer,
        statuses=statuses,
        probes=probes,
        fresh=pleg,
        preparation=Preparation(
            (
                NetworkStep(network=runtime, recorder=ports.recorder),
                ObjectStep(volumes),
                cgroups,
                DirectoryStep(directories=host_resources, recorder=ports.recorder),
                VolumeStep(volumes=volumes, held=host_resources, recorder=ports.recorder),
                PullSecretStep(pull_secrets=images.pull_secrets, recorder=ports.recorder),
            ),
            stopping_pods=boards.stopping_pods,
            durations=register_preparation(boards.metrics),
            clock=ports.clock,
        ),
        stopping_pods=boards.stopping_pods,
        recorder=ports.recorder,
    )
    steps = CountedSteps(
        inner=steps,
        metrics=register_pod_workers(boards.metrics),
        reported=boards.statuses.get,
        clock=ports.clock,
    )
    if ports.reboot is not None:
        steps = RebootedPods(inner=steps, reboot=ports.reboot, restart_all=settings.features.restart_all)
    if ports.tracer is not None:
        steps = TracedSteps(inner=steps, tracer=ports.tracer)
    placement = build_placement(ports, settings, boards, managers)
    chain = build_admission(ports, settings, boards, runtime=runtime, managers=(managers.topology,))
    trigger = HousekeepingTrigger(sources_ready=ports.changes.all_ready, clock=ports.clock)
    earlier = EarlierAdmissions(cache=boards.cache, status_of=boards.statuses.get)
    admission = PodAdmission(
        handlers=chain.handlers,
        declared_features=settings.declared_features,
        pods=boards.pods,
        ledger=boards.ledger,
        allocations=boards.allocations,
        earlier=earlier,
        report_rejection=statuses.reject,
        recorder=ports.recorder,
    )
    workers = PodWorkers(
        admission=CountedAdmission(inner=admission, metrics=register_admission(boards.metrics)),
        steps=steps,
        statuses=pleg,
        is_live=boards.cache.is_live,
        ledger=boards.ledger,
        stopping_pods=boards.stopping_pods,
        recorder=ports.recorder,
        clock=ports.clock,
        resync=ResyncSettings(settings.resync, ports.randomness),
        on_finished=trigger.finished,
    )
    housekeeping = Housekeeping(
        pods=boards.pods,
        ledger=boards.ledger,
        workers=workers,
        cache=boards.cache,
        memories=PodMemories(
            forget=(
                statuses.forget,
                boards.allocations.forget,
                earlier.forget,
                boards.backoff.forget,
                parts.sandboxes.forget,
                boards.pulls.forget,
                boards.image_holds.forget,
                probes.remove_pod,
            ),
            remembered=partial(remembered_pods, boards),
            status_of=boards.statuses.get,
        ),
        leftovers=Leftovers(
            killer=killer, files=host_resources, links=ports.logs, cgroups=ports.cgroups, recorder=ports.recorder
        ),
        trigger=trigger,
        clock=ports.clock,
        metrics=register_housekeeping(boards.metrics),
    )

    async def until_runtime_well() -> None:
        await pleg.until_relisted()
        await runtime.until_well()

    monitor = SyncLoopMonitor(until_runtime_well=until_runtime_well, clock=ports.clock, resync=settings.resync)
    loop = _build_loop(ports, boards, workers=workers, statuses=statuses, monitor=monitor, trigger=trigger)
    queries = PodQueries(ledger=boards.ledger, sources_ready=ports.changes.all_ready)
    gc = _build_gc(ports, settings, boards, parts.remover, queries)
    shown = ports.volumes.objects, ports.volumes.trust, ports.volumes.certificates
    keeper = VolumeKeeper(objects=shown, volumes=manager)
    finder = ports.volumes.flex
    flex = () if finder is None else (FlexWatcher(finder=finder, volumes=manager, clock=ports.clock),)
    wakes = ObjectWaker(objects=ports.volumes.objects, pods=boards.pods, statuses=boards.statuses, workers=workers)
    logs = _build_logs(ports, settings, boards)
    oom = _build_oom(ports, boards, pleg)
    stats = StatsCollector(
        host=ports.usage,
        seen=boards.cache,
        images=SandboxImages(runtime=ports.runtime, clock=ports.clock),
        settings=settings.stats,
        pods_root=partial(_pods_cgroup, ports, settings),
        clock=ports.clock,
    )
    startups = PodStartups(
        pods=boards.pods,
        seen=boards.cache,
        pulls=boards.pull_times,
        metrics=register_startups(boards.metrics),
        clock=ports.clock,
    )
    # Parts that need the runtime belong here: one that comes late holds up nothing else.
    after_contact = AfterFirstContact(
        contact=ports.contact,
        prepare=ports.prepare_runtime,
        parts=(
            pleg,
            housekeeping,
            *ports.cgroup_parts,
            build_qos_repair(ports, cgroups, ports.changes.all_ready),
            gc,
            *disks.parts,
            *managers.parts,
            *images.parts,
            *collection.parts,
            *logs,
            *build_plugin_manager(ports, boards),
        ),
    )
    return Agent(
        parts=(
            saved_state,
            after_contact,
            checks,
            manager,
            keeper,
            *flex,
            workers,
            probes,
            *oom,
            wakes,
            startups,
            loop,
        ),
        pods=boards.pods,
        allocations=boards.allocations,
        statuses=boards.statuses,
        ledger=boards.ledger,
        fit=FitPreview(chain=chain, placement=placement, others_of=admission.others_of, clock=ports.clock),
        queries=queries,
        cache=boards.cache,
        pleg=pleg,
        runtime=runtime,
        workers=workers,
        volumes=manager,
        loop=loop,
        metrics=ports.metrics,
        stats=stats,
        summaries=build_summaries(ports, settings, boards, stats, disks.disk),
        disk=disks.disk,
        pulls=PullMeter(pulls=boards.running_pulls, content=ports.content, clock=ports.clock),
        images=boards.images,
        image_views=collection.views,
        topology=build_topology_reader(ports, settings, boards, managers),
    )


def _build_reporting(ports: Ports, settings: AgentSettings, boards: Boards) -> tuple[ProbeManager, PodStatuses]:
    """Build the probes, and the statuses that report their results."""
    started = ports.clock.now()
    probes = ProbeManager(
        statuses=boards.statuses,
        results=boards.probes,
        prober=CountedProber(
            inner=Prober(runtime=ports.runtime, http=ports.http),
            metrics=register_probes(ports.metrics.probes),
            clock=ports.clock,
        ),
        restarts=partial(comes_back, restart_all=settings.features.restart_all),
        recorder=ports.recorder,
        clock=ports.clock,
        randomness=ports.randomness,
        agent_started=started,
    )
    statuses = PodStatuses(
        board=boards.statuses,
        allocations=boards.allocations,
        failures=StartFailures(),
        probes=boards.probes,
        probers=probes,
        recorder=ports.recorder,
        facts=StatusFacts(
            ports.contact.runtime_name, started, ports.host_ips, prefers_ipv6(settings.node), settings.features
        ),
        clock=ports.clock,
    )
    return probes, statuses


def _build_volumes(ports: Ports, settings: AgentSettings, boards: Boards) -> tuple[VolumeManager, PodVolumes]:
    """Build the volume manager, and the view that one pod has of its volumes."""
    manager = build_manager(
        ManagerPorts(
            plugins=ports.volumes.plugins,
            translate=translate_to_csi,
            claims=ports.volumes.claims,
            layout=ports.volumes.layout,
            disk=ports.volumes.directories,
            devices=ports.volumes.devices,
            allocations=boards.allocations,
            find_node=ports.volumes.find_node,
            node=ports.volumes.node,
            node_name=settings.node_name,
            attaches=not settings.node.has_attach_controller,
            labels=settings.volume_labels,
            recorder=ports.recorder,
            refresh=settings.resync,
            randomness=ports.randomness,
            clock=ports.clock,
            registry=boards.metrics,
        )
    )
    orphans = OrphanedPods(volumes=manager, directories=ports.volumes.directories)
    return manager, PodVolumes(manager=manager, objects=ports.volumes.objects, orphans=orphans)


def _build_loop(
    ports: Ports,
    boards: Boards,
    *,
    workers: PodWorkers,
    statuses: PodStatuses,
    monitor: SyncLoopMonitor,
    trigger: HousekeepingTrigger,
) -> SyncLoop:
    return SyncLoop(
        changes=ports.changes,
        pods=boards.pods,
        workers=workers,
        cache=boards.cache,
        probe_sync=ProbeSync(probes=boards.probes, pods=boards.pods, statuses=statuses, workers=workers),
        monitor=monitor,
        housekeeping=trigger.ask,
        recorder=ports.recorder,
    )


def _pods_cgroup(ports: Ports, settings: AgentSettings) -> str:
    """Return the cgroup of all pods, as the runtime's driver writes it; empty before the runtime has answered."""
    found = ports.contact.found
    if found is None:
        return ""
    root = parse_cgroupfs(settings.cgroup_root)
    name = pods_root(root) if settings.cgroups_per_qos else root
    return cgroup_path(name, CgroupDriver(found.cgroup_driver))


def _build_logs(ports: Ports, settings: AgentSettings, boards: Boards) -> tuple[Part, ...]:
    if not settings.log_rotation.is_on:
        return ()
    manager = LogManager(
        runtime=ports.runtime,
        seen=boards.cache,
        files=ports.rotated_logs,
        recorder=ports.recorder,
        clock=ports.clock,
        settings=settings.log_rotation,
        registry=boards.metrics,
    )
    return (manager,)


def _build_oom(ports: Ports, boards: Boards, pleg: Pleg) -> tuple[Part, ...]:
    if ports.kernel_log is None:
        return ()
    watcher = OomWatcher(
        log=ports.kernel_log,
        seen=boards.cache,
        until_seen=pleg.until_relisted,
        counts=ports.oom_counts,
        recorder=ports.recorder,
        clock=ports.clock,
    )
    return (watcher,)


def _build_gc(
    ports: Ports, settings: AgentSettings, boards: Boards, remover: ContainerRemover, queries: PodQueries
) -> ContainerGc:
    return ContainerGc(
        runtime=ports.runtime,
        remover=remover,
        fates=queries,
        seen=boards.cache,
        recorder=ports.recorder,
        clock=ports.clock,
        policy=settings.gc,
        tracer=ports.tracer,
    )
