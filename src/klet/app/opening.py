"""How the ports are opened: files, threads, cgroups and the runtime of this machine."""

import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.cgroup_opening import open_cgroups
from klet.app.metrics import register_journal
from klet.app.ports import BasePorts, ContainerPorts, NodeObjects, PluginPorts, Ports
from klet.app.provider_opening import open_provider_logins
from klet.app.resource_opening import open_cpu_manager, open_memory_manager
from klet.app.settings import AgentSettings
from klet.app.volume_opening import open_meter, open_quotas, open_volumes
from klet.certs.pod_certificates.board import NoPodCertificates
from klet.checkpoint import CheckpointFile, Found
from klet.cri.client import CriClient
from klet.cri.connection import open_connection
from klet.cri.content import NAMESPACE, ContainerdContent
from klet.cri.counted import CountedTransport
from klet.cri.events import ContainerdEvents, CriEvents
from klet.cri.metrics import RuntimeCallMetrics, register_runtime_calls
from klet.events.recorder import EventingRecorder
from klet.host.addresses import AddressReader
from klet.host.cgroups.discover import find_cgroup_files, find_hierarchy
from klet.host.cgroups.members import CgroupMembers
from klet.host.cgroups.metrics import register_cgroup_version
from klet.host.disk import FilesystemCapacity
from klet.host.errors import HostError
from klet.host.http_client import HttpClient
from klet.host.kmsg import KMSG, KernelLog, KernelLogRefused
from klet.host.listening import HostSockets
from klet.host.machine.cache import MachineCache
from klet.host.machine.filesystems import FilesystemReader
from klet.host.oom_counts import CgroupOomCounts, counter_place
from klet.host.plugin_sockets import RegistrationSockets
from klet.host.root_directory import PLUGIN_REGISTRY
from klet.host.socket_watch import watch_sockets
from klet.host.subordinate_ids import read_granted_ids
from klet.host.usage_host import UsageHost
from klet.images.node_logins import NodeLoginFiles
from klet.images.pulled.files import PullFileDirectories
from klet.journal.store import Journal
from klet.logs.rotated_files import RotatedLogFiles
from klet.logs.termination_files import TerminationFileReader
from klet.metrics import AgentMetrics
from klet.model.boots import Reboot
from klet.model.causes import CauseRecorder
from klet.model.saved_state import SavedState
from klet.model.tracing import Tracer
from klet.network.resolver import PodResolver
from klet.node.boots import BOOT_FORMAT, BootKeeper
from klet.node.capacity import AllocatableResources, expect_allocatable
from klet.node.first_contact import FirstContact
from klet.node.machine_checks import check_storage
from klet.node.status_inputs import PATIENCE
from klet.objectcache.claims import StandaloneClaims
from klet.objectcache.standalone import StandaloneAccounts, StandaloneObjects, StandaloneTokens
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.plugins.boards import PluginHandler
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
from klet.runtime.quirks.lost_tasks import ContainerdTasks, LostTaskRemover
from klet.runtime.runtime_class import KnownRuntimeClasses, RuntimeHandlers
from klet.status.checkpoint import SavedStateFormat
from klet.sync.loop import ChangeSource

logger = logging.getLogger(__name__)

DISK_THREADS = 8
DEAD_DISK_THREADS = 2
VOLUME_THREADS = 16
"""Volumes have threads of their own: a file system that hangs blocks no other part."""
METER_THREADS = 4
"""What is measured may hang, too."""
KUBELET_USER = "kubelet"


@asynccontextmanager
async def open_base(
    settings: AgentSettings,
    *,
    machine: MachineCache,
    clock: Clock,
    metrics: AgentMetrics,
    has_events: bool,
    tracer: Tracer | None = None,
) -> AsyncIterator[BasePorts]:
    """Open the journal, and the way to the runtime, which need not be there yet; raises KletError."""
    async with AsyncExitStack() as opened:
        threads = Threads(limit=DISK_THREADS)
        opened.callback(threads.close)
        journal = Journal(path=settings.journal, clock=clock, max_records=settings.journal_records)
        await journal.open()
        opened.push_async_callback(journal.close)
        register_journal(metrics.agent, lambda: journal.unwritten, lambda: journal.dropped)
        events = EventingRecorder(inner=journal, clock=clock) if has_events else None
        runtime = await opened.enter_async_context(
            open_runtime(settings, events or journal, clock, register_runtime_calls(metrics.agent), tracer)
        )
        endpoint = settings.image_endpoint or settings.runtime_endpoint
        blobs = await opened.enter_async_context(open_connection(endpoint, metadata=NAMESPACE))
        yield BasePorts(
            clock=clock,
            randomness=random.Random(),
            machine=machine,
            threads=threads,
            runtime=runtime,
            contact=FirstContact(
                runtime=runtime,
                endpoint=settings.runtime_endpoint,
                configured_driver=settings.cgroup_driver,
                clock=clock,
            ),
            journal=journal,
            events=events,
            metrics=metrics,
            content=ContainerdContent(connection=blobs),
            tracer=tracer,
        )


@asynccontextmanager
async def open_runtime(
    settings: AgentSettings,
    recorder: CauseRecorder,
    clock: Clock,
    metrics: RuntimeCallMetrics,
    tracer: Tracer | None = None,
) -> AsyncIterator[CriClient]:
    """Return a client that records calls which are not answered in time, and containers that the runtime has lost."""
    async with AsyncExitStack() as opened:
        plain = await opened.enter_async_context(open_connection(settings.runtime_endpoint, tracer=tracer))
        images = plain
        if settings.image_endpoint not in ("", settings.runtime_endpoint):
            images = await opened.enter_async_context(open_connection(settings.image_endpoint, tracer=tracer))
        own = await opened.enter_async_context(open_connection(settings.runtime_endpoint, metadata=NAMESPACE))
        repaired = LostTaskRemover(inner=plain, tasks=ContainerdTasks(connection=own, clock=clock))
        watched = WatchedTransport(inner=repaired, recorder=recorder, clock=clock)
        yield CriClient(
            runtime=CountedTransport(inner=watched, metrics=metrics, clock=clock),
            images=CountedTransport(inner=images, metrics=metrics, clock=clock),
            timeout=settings.request_timeout,
        )


class LeftState(Struct, frozen=True, kw_only=True):
    """What previous runs of the agent left on this machine."""

    saved: SavedState
    store: CheckpointFile[SavedState]
    boots: BootKeeper
    reboot: Reboot | None


async def open_left_state(settings: AgentSettings, base: BasePorts, *, last_record: datetime | None) -> LeftState:
    """Read what previous runs left, and record a reboot of the machine since then.

    `last_record` is when a previous run made its last record in the journal.
    """
    threads, clock, recorder = base.threads, base.clock, base.recorder
    store = CheckpointFile(
        path=settings.saved_state, form=SavedStateFormat(), threads=threads, clock=clock, recorder=recorder
    )
    loaded = await store.read()
    saved = loaded.value if isinstance(loaded, Found) else SavedState()
    file = CheckpointFile(path=settings.boot, form=BOOT_FORMAT, threads=threads, clock=clock, recorder=recorder)
    known = await file.read()
    boots = BootKeeper(
        left=known.value if isinstance(known, Found) else None,
        store=file,
        machine=base.machine.info(),
        recorder=recorder,
        clock=clock,
    )
    reboot = await boots.start(last_record=last_record, pods=frozenset(saved.statuses))
    return LeftState(saved=saved, store=store, boots=boots, reboot=reboot)


@asynccontextmanager
async def open_ports(
    settings: AgentSettings,
    base: BasePorts,
    *,
    left: LeftState,
    objects: NodeObjects,
    changes: ChangeSource,
    node_ips: Callable[[], tuple[str, ...]],
    host_ips: Callable[[], tuple[str, ...]] = tuple,
    plugin_handlers: Mapping[str, PluginHandler] | None = None,
) -> AsyncIterator[Ports]:
    """Yield the ports of this machine."""
    client, threads, clock = base.runtime, base.threads, base.clock
    # What may hang has threads of its own.
    termination_threads = Threads(limit=DEAD_DISK_THREADS, name="klet-termination-files")
    volume_threads = Threads(limit=VOLUME_THREADS, name="klet-volumes")
    meter_threads = Threads(limit=METER_THREADS, name="klet-disk-usage")
    pull_threads = Threads(limit=1, name="klet-pull-records")
    quotas = open_quotas(settings, volume_threads, clock)
    rotated_logs = RotatedLogFiles(workers=settings.log_rotation.workers)
    machine = base.machine.info()
    kernel_log = open_kernel_log(
        in_user_namespace=machine.in_user_namespace, is_optional=settings.tolerates_user_namespace
    )
    counters, counter = counter_place(machine.cgroup_version)
    try:
        containers = await open_container_ports(settings, objects, base)
        hierarchy = find_hierarchy()
        cgroups = open_cgroups(
            settings,
            hierarchy,
            members=CgroupMembers(hierarchy=hierarchy, threads=threads),
            threads=threads,
            recorder=base.recorder,
            registry=base.metrics.agent,
            clock=clock,
        )
        register_cgroup_version(base.metrics.agent, machine.cgroup_version)
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
            rotated_logs=rotated_logs,
            usage=open_usage(settings, threads, clock),
            disk=open_meter(settings.root, objects.csi, quotas, threads=meter_threads, clock=clock),
            kernel_log=kernel_log,
            oom_counts=CgroupOomCounts(root=counters, file=counter, threads=threads),
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
            contact=base.contact,
            prepare_runtime=cgroups.prepare,
            cgroup_parts=cgroups.parts,
            node_ips=node_ips,
            host_ips=host_ips,
            randomness=base.randomness,
            containers=containers,
            volumes=await open_volumes(
                settings,
                objects,
                node=containers.resources,
                in_user_namespace=base.machine.info().in_user_namespace,
                quotas=quotas,
                recorder=base.recorder,
                threads=volume_threads,
                clock=clock,
            ),
            node_logins=NodeLoginFiles(root=settings.root, home=_find_home(), threads=threads, clock=clock),
            provider_logins=open_provider_logins(
                settings, objects, recorder=base.recorder, registry=base.metrics.agent, clock=clock
            ),
            pull_files=PullFileDirectories(root=settings.root / "image_manager", threads=pull_threads),
            saved_state=left.saved,
            saved_state_store=left.store,
            reboot=left.reboot,
            machine=base.machine,
            addresses=AddressReader(threads=threads, patience=PATIENCE, clock=clock),
            storage=FilesystemCapacity(path=settings.root, threads=threads).read,
            metrics=base.metrics,
            content=base.content,
            tracer=base.tracer,
            cpus=await open_cpu_manager(settings, client, threads=threads, clock=clock),
            memory=await open_memory_manager(settings, threads=threads, clock=clock),
            plugins=open_plugins(settings.root, plugin_handlers or {}, threads=threads, clock=clock),
        )
    finally:
        if kernel_log is not None:
            kernel_log.close()
        rotated_logs.close()
        pull_threads.close()
        meter_threads.close()
        volume_threads.close()
        termination_threads.close()


def open_plugins(root: Path, handlers: Mapping[str, PluginHandler], *, threads: Threads, clock: Clock) -> PluginPorts:
    """Return the sockets of plugins below the agent's root directory."""
    return PluginPorts(
        watch=partial(watch_sockets, root / PLUGIN_REGISTRY, threads=threads),
        sockets=RegistrationSockets(clock=clock),
        handlers=handlers,
    )


def open_kernel_log(*, in_user_namespace: bool, is_optional: bool, path: Path = KMSG) -> KernelLog | None:
    """Open the kernel's log for the OOM watcher; None in a user namespace that does not let it be read.

    `is_optional` is the gate KubeletInUserNamespace; without it such a node does not start, as upstream's.
    """
    try:
        return KernelLog.open(path)
    except HostError as error:
        if not in_user_namespace:
            raise
        if not is_optional:
            raise KernelLogRefused(f"{error} (running in UserNS: enable the gate KubeletInUserNamespace)") from error
        logger.info("Failed to create an oomWatcher (running in UserNS, ignoring)", extra={"error": str(error)})
        return None


def open_usage(settings: AgentSettings, threads: Threads, clock: Clock) -> UsageHost:
    """Return what measures the cgroups of this machine."""
    return UsageHost(
        files=find_cgroup_files(),
        filesystems=FilesystemReader(own=settings.root),
        threads=threads,
        clock=clock,
    )


def _find_home() -> Path | None:
    home = os.environ.get("HOME")
    return Path(home) if home else None


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
    check_storage(storage, settings.node)
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


def standalone_objects(runtime_handlers: Mapping[str, str]) -> NodeObjects:
    """Return the objects of a node without an API server: only the runtime classes of klet's configuration."""
    nothing = NoObjects()
    return NodeObjects(
        referred=StandaloneObjects(),
        claims=StandaloneClaims(),
        data=nothing,
        tokens=StandaloneTokens(),
        accounts=StandaloneAccounts(),
        trust=NoTrustBundles(),
        certificates=NoPodCertificates(),
        services=nothing,
        runtime_classes=KnownRuntimeClasses(handlers=runtime_handlers),
        find_node=lambda: None,
        node=None,
        has_api=False,
    )
