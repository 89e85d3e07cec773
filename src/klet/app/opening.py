"""How the ports are opened: files, threads, cgroups and the runtime of this machine."""

import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.placement import Taint
from klet.app.ports import BasePorts, ContainerPorts, NodeObjects, NodeVolumes, Ports
from klet.app.settings import AgentSettings
from klet.certs.pod_certificates.board import NoPodCertificates
from klet.checkpoint import CheckpointFile, Found
from klet.cri.client import CriClient, connect
from klet.cri.connection import open_connection
from klet.cri.errors import CriError
from klet.cri.events import ContainerdEvents, CriEvents
from klet.events.recorder import EventingRecorder
from klet.host.addresses import AddressReader
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.manager import CgroupManager, NoUnits, Units
from klet.host.cgroups.names import CgroupDriver, parse_cgroupfs
from klet.host.disk import FilesystemCapacity
from klet.host.http_client import HttpClient
from klet.host.listening import HostSockets
from klet.host.machine.cache import MachineCache
from klet.host.subordinate_ids import read_granted_ids
from klet.images.node_logins import NodeLoginFiles
from klet.journal.store import Journal
from klet.logs.termination_files import TerminationFileReader
from klet.model.causes import CauseRecorder
from klet.model.roles import NodeResources
from klet.model.saved_state import SavedState
from klet.network.resolver import PodResolver
from klet.node.capacity import AllocatableResources, expect_allocatable
from klet.node.status_inputs import PATIENCE
from klet.objectcache.standalone import StandaloneObjects, StandaloneTokens
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.resources.names import pods_root
from klet.resources.pod_cgroups import NoPodCgroups, PodCgroups
from klet.resources.qos_cgroups import NoQosCgroups, QosCgroups
from klet.runtime.claims import NoClaims
from klet.runtime.config.container_options import NoDevices
from klet.runtime.config.id_blocks import IdBlocks, choose_range, parse_granted
from klet.runtime.config.mapping_files import PodMappingFiles
from klet.runtime.config.sub_paths import BoundSubPaths
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.runtime.environment.env_sources import NoObjects, VolumeFiles
from klet.runtime.log_files import LogFiles
from klet.runtime.pod_files import PodFiles
from klet.runtime.quirks.late_calls import WatchedTransport
from klet.runtime.quirks.lost_tasks import NAMESPACE, ContainerdTasks, LostTaskRemover
from klet.runtime.runtime_class import KnownRuntimeClasses, RuntimeHandlers
from klet.status.checkpoint import SavedStateFormat
from klet.sync.loop import ChangeSource
from klet.volumes.build import VolumePorts, build_plugins
from klet.volumes.directories import PodDirectories
from klet.volumes.host_mounter import HostMounter, find_noswap
from klet.volumes.names import Layout
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DISK_THREADS = 8
DEAD_DISK_THREADS = 2
VOLUME_THREADS = 16
"""Volumes have threads of their own: a file system that hangs blocks no other part."""
RUNTIME_PATIENCE = timedelta(seconds=30)
RUNTIME_PAUSE = timedelta(milliseconds=200)
KUBELET_USER = "kubelet"


@asynccontextmanager
async def open_base(
    settings: AgentSettings, *, machine: MachineCache, clock: Clock, has_events: bool
) -> AsyncIterator[BasePorts]:
    """Open the journal and the runtime; raises KletError if one of them fails."""
    async with AsyncExitStack() as opened:
        threads = Threads(limit=DISK_THREADS)
        opened.callback(threads.close)
        journal = Journal(path=settings.journal, clock=clock, max_records=settings.journal_records)
        await journal.open()
        opened.push_async_callback(journal.close)
        events = EventingRecorder(inner=journal, clock=clock) if has_events else None
        runtime = await opened.enter_async_context(open_runtime(settings, events or journal, clock))
        yield BasePorts(
            clock=clock,
            randomness=random.Random(),
            machine=machine,
            threads=threads,
            runtime=runtime,
            runtime_version=await runtime.version(cri.VersionRequest()),
            journal=journal,
            events=events,
        )


@asynccontextmanager
async def open_runtime(settings: AgentSettings, recorder: CauseRecorder, clock: Clock) -> AsyncIterator[CriClient]:
    """Return a client that records calls which are not answered in time, and containers that the runtime has lost."""
    async with (
        connect_patiently(settings, clock) as plain,
        open_connection(settings.runtime_endpoint, metadata=NAMESPACE) as own,
    ):
        repaired = LostTaskRemover(inner=plain.runtime, tasks=ContainerdTasks(connection=own, clock=clock))
        watched = WatchedTransport(inner=repaired, recorder=recorder, clock=clock)
        yield CriClient(runtime=watched, images=plain.images, timeout=settings.request_timeout)


@asynccontextmanager
async def connect_patiently(settings: AgentSettings, clock: Clock) -> AsyncIterator[CriClient]:
    """Connect to a runtime that may still be starting."""
    give_up = clock.monotonic() + RUNTIME_PATIENCE.total_seconds()
    logged = ""
    async with AsyncExitStack() as opened:
        while True:
            try:
                client = await opened.enter_async_context(
                    connect(
                        runtime_endpoint=settings.runtime_endpoint,
                        image_endpoint=settings.image_endpoint,
                        timeout=settings.request_timeout,
                    )
                )
                break
            except CriError as error:
                if clock.monotonic() >= give_up:
                    raise
                if str(error) != logged:
                    logged = str(error)
                    logger.info("Waiting for the runtime", extra={"error": logged})
                await clock.sleep(RUNTIME_PAUSE)
        yield client


@asynccontextmanager
async def open_ports(
    settings: AgentSettings,
    base: BasePorts,
    *,
    objects: NodeObjects,
    changes: ChangeSource,
    node_ips: Callable[[], tuple[str, ...]],
    host_ips: Callable[[], tuple[str, ...]] = tuple,
    node_taints: Callable[[], tuple[Taint, ...]] = tuple,
) -> AsyncIterator[Ports]:
    """Yield the ports of this machine."""
    client, threads, clock = base.runtime, base.threads, base.clock
    # What may hang has threads of its own.
    termination_threads = Threads(limit=DEAD_DISK_THREADS, name="klet-termination-files")
    volume_threads = Threads(limit=VOLUME_THREADS, name="klet-volumes")
    try:
        containers = await open_container_ports(settings, objects, base)
        cgroups = await open_pod_cgroups(settings, threads, clock)
        saved_state = CheckpointFile(path=settings.saved_state, form=SavedStateFormat(), threads=threads, clock=clock)
        loaded = saved_state.load()
        # An administrator may have put the logs elsewhere by a link. From here on no link is followed.
        logs, links = [
            Path(await threads.run(os.path.realpath, path)) for path in (settings.sandbox.logs, settings.legacy_logs)
        ]
        yield Ports(
            clock=clock,
            runtime=client,
            images=client,
            events=(ContainerdEvents(connection=client.runtime), CriEvents(runtime=client)),
            recorder=base.recorder,
            changes=changes,
            termination_files=TerminationFileReader(root=settings.root, threads=termination_threads),
            logs=LogFiles(logs=logs, links=links, threads=threads),
            http=HttpClient(),
            files=PodFiles(
                root=settings.root,
                logs=logs,
                cluster_domain=settings.sandbox.cluster_domain,
                threads=threads,
            ),
            cgroups=cgroups.pods,
            qos=cgroups.qos,
            dns=PodResolver(
                resolv_conf=settings.resolv_conf, settings=settings.dns, threads=threads, recorder=base.recorder
            ),
            runtime_name=base.runtime_version.runtime_name,
            node_ips=node_ips,
            host_ips=host_ips,
            node_taints=node_taints,
            randomness=base.randomness,
            containers=containers,
            volumes=await open_volumes(
                settings,
                objects,
                node=containers.resources,
                in_user_namespace=base.machine.info().in_user_namespace,
                threads=volume_threads,
                clock=clock,
            ),
            node_logins=NodeLoginFiles(root=settings.root, home=_find_home(), threads=threads, clock=clock),
            saved_state=loaded.value if isinstance(loaded, Found) else SavedState(),
            saved_state_store=saved_state,
            machine=base.machine,
            addresses=AddressReader(threads=threads, patience=PATIENCE, clock=clock),
            storage=FilesystemCapacity(path=settings.root, threads=threads).read,
        )
    finally:
        volume_threads.close()
        termination_threads.close()


def _find_home() -> Path | None:
    home = os.environ.get("HOME")
    return Path(home) if home else None


class PodCgroupPorts(Struct, frozen=True, kw_only=True):
    """What looks after the cgroups of pods and of their classes."""

    pods: PodCgroups | NoPodCgroups
    qos: QosCgroups | NoQosCgroups


async def open_pod_cgroups(settings: AgentSettings, threads: Threads, clock: Clock) -> PodCgroupPorts:
    """Make the cgroups that all pods live in."""
    if not settings.cgroups_per_qos:
        return PodCgroupPorts(pods=NoPodCgroups(), qos=NoQosCgroups())
    cgroups = build_cgroups(settings, threads, clock)
    # The root is written as a path whatever the driver is, as upstream has it.
    kubepods = pods_root(parse_cgroupfs(settings.cgroup_root))
    qos = QosCgroups(cgroups=cgroups, kubepods=kubepods, rules=settings.qos)
    await qos.start()
    return PodCgroupPorts(pods=PodCgroups(cgroups=cgroups, kubepods=kubepods, rules=settings.pod_cgroups), qos=qos)


def build_cgroups(settings: AgentSettings, threads: Threads, clock: Clock) -> CgroupManager:
    hierarchy = find_hierarchy()
    units: Units = NoUnits()
    if settings.cgroup_driver == CgroupDriver.SYSTEMD:
        # Only a node with this driver pays for the D-Bus library.
        from klet.host.cgroups.systemd import SystemdUnits  # noqa: PLC0415 - see above
        from klet.host.systemd_bus import SystemdConnection  # noqa: PLC0415 - see above

        units = SystemdUnits(bus=SystemdConnection(), mode=hierarchy.mode)
    return CgroupManager(hierarchy=hierarchy, units=units, threads=threads, clock=clock)


async def open_container_ports(settings: AgentSettings, objects: NodeObjects, base: BasePorts) -> ContainerPorts:
    """Return the ports of a real runtime."""
    threads = base.threads
    handlers = RuntimeHandlers(runtime=base.runtime)
    granted = await read_granted_ids(KUBELET_USER)
    ids = choose_range(
        per_pod=settings.user_ids.per_pod,
        max_pods=settings.user_ids.max_pods,
        granted=parse_granted(granted.users, granted.groups) if granted is not None else None,
    )
    mappings = PodMappingFiles(root=settings.root, threads=threads)
    user_namespaces = UserNamespaceManager(
        blocks=IdBlocks(ids=ids),
        files=mappings,
        handlers=handlers,
        randomness=base.randomness,
        is_enabled=settings.user_ids.is_enabled,
    )
    if settings.user_ids.is_enabled:
        user_namespaces.restore(await mappings.read_all())
    storage = await FilesystemCapacity(path=settings.root, threads=threads).read()
    expected = expect_allocatable(base.machine.info(), storage=storage, settings=settings.node)
    return ContainerPorts(
        objects=objects.data,
        services=objects.services,
        resources=AllocatableResources(expected=expected, find_node=objects.find_node),
        runtime_classes=objects.runtime_classes,
        handlers=handlers,
        devices=NoDevices(),
        claims=NoClaims(),
        volume_files=VolumeFiles(threads=threads),
        sub_paths=BoundSubPaths(root=settings.root, threads=threads),
        user_namespaces=user_namespaces,
        host_ports=HostSockets(threads=threads),
    )


async def open_volumes(
    settings: AgentSettings,
    objects: NodeObjects,
    *,
    node: NodeResources,
    in_user_namespace: bool,
    threads: Threads,
    clock: Clock,
) -> NodeVolumes:
    """Return the volume ports of this machine."""
    ports = VolumePorts(
        root=settings.root,
        objects=objects.referred,
        tokens=objects.tokens,
        trust=objects.trust,
        certificates=objects.certificates,
        node=node,
        mounter=HostMounter(),
        threads=threads,
        clock=clock,
        has_api=objects.has_api,
        noswap=await threads.run(find_noswap, settings.root, in_user_namespace=in_user_namespace),
        has_images=settings.has_image_volumes,
    )
    return build_volumes(ports, objects)


def build_volumes(ports: VolumePorts, objects: NodeObjects) -> NodeVolumes:
    return NodeVolumes(
        plugins=build_plugins(ports),
        directories=PodDirectories(layout=Layout(ports.root), threads=ports.threads),
        objects=objects.referred,
        trust=objects.trust,
        certificates=objects.certificates,
        noswap=ports.noswap,
    )


def standalone_objects(runtime_handlers: Mapping[str, str]) -> NodeObjects:
    """Return the objects of a node without an API server: only the runtime classes of klet's configuration."""
    nothing = NoObjects()
    return NodeObjects(
        referred=StandaloneObjects(),
        data=nothing,
        tokens=StandaloneTokens(),
        trust=NoTrustBundles(),
        certificates=NoPodCertificates(),
        services=nothing,
        runtime_classes=KnownRuntimeClasses(handlers=runtime_handlers),
        find_node=lambda: None,
        has_api=False,
    )
