"""Opens the real ports: files, threads and cgroups of this machine, besides what the agent stands on already."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.agent_ports import Ports
from klet.app.basics import Basics
from klet.app.container_ports import open_container_ports
from klet.app.objects import NodeObjects
from klet.app.settings import AgentSettings
from klet.app.volumes import VOLUME_THREADS, open_volumes
from klet.checkpoint import CheckpointFile, Found
from klet.cri.events import ContainerdEvents, CriEvents
from klet.host.addresses import AddressReader
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.manager import CgroupManager, NoUnits, Units
from klet.host.cgroups.names import CgroupDriver, parse_cgroupfs
from klet.host.disk import FilesystemCapacity
from klet.host.http_client import HttpClient
from klet.images.node_logins import NodeLoginFiles
from klet.logs.termination_files import TerminationFileReader
from klet.model.memory import AgentMemory
from klet.network.resolver import PodResolver
from klet.node.status_inputs import PATIENCE
from klet.resources.names import pods_root
from klet.resources.pod_cgroups import NoPodCgroups, PodCgroups
from klet.resources.qos_cgroups import NoQosCgroups, QosCgroups
from klet.runtime.log_files import LogFiles
from klet.runtime.pod_files import PodFiles
from klet.status.checkpoint import MemoryFormat
from klet.sync.loop import ChangeSource

DEAD_DISK_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the node stands: what its pods can refer to, and under which addresses it is found."""

    objects: NodeObjects
    node_ips: Callable[[], tuple[str, ...]]
    """As containers may ask for them."""
    host_ips: Callable[[], tuple[str, ...]] = tuple
    """As statuses tell them: only where there is an API server."""


@asynccontextmanager
async def open_ports(
    settings: AgentSettings, basics: Basics, *, place: Place, changes: ChangeSource
) -> AsyncIterator[Ports]:
    """Those of this machine."""
    client, threads, clock = basics.runtime, basics.threads, basics.clock
    # What may hang has threads of its own.
    last_words = Threads(limit=DEAD_DISK_THREADS, name="klet-last-words")
    volume_threads = Threads(limit=VOLUME_THREADS, name="klet-volumes")
    try:
        containers = await open_container_ports(settings, place.objects, basics)
        cgroups = await open_pod_cgroups(settings, threads, clock)
        memory = CheckpointFile(path=settings.memory, form=MemoryFormat(), threads=threads, clock=clock)
        remembered = memory.load()
        # An administrator may have put the logs elsewhere by a link. From here on no link is followed.
        logs, links = [
            Path(await threads.run(os.path.realpath, path)) for path in (settings.sandbox.logs, settings.legacy_logs)
        ]
        yield Ports(
            clock=clock,
            runtime=client,
            images=client,
            events=(ContainerdEvents(connection=client.runtime), CriEvents(runtime=client)),
            recorder=basics.recorder,
            changes=changes,
            left_files=TerminationFileReader(root=settings.root, threads=last_words),
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
                resolv_conf=settings.resolv_conf, settings=settings.dns, threads=threads, recorder=basics.recorder
            ),
            runtime_name=basics.runtime_version.runtime_name,
            node_ips=place.node_ips,
            host_ips=place.host_ips,
            randomness=basics.randomness,
            containers=containers,
            volumes=await open_volumes(
                settings, place.objects, node=containers.resources, threads=volume_threads, clock=clock
            ),
            node_logins=NodeLoginFiles(root=settings.root, home=_find_home(), threads=threads, clock=clock),
            memory=remembered.value if isinstance(remembered, Found) else AgentMemory(),
            memory_store=memory,
            machine=basics.machine,
            addresses=AddressReader(threads=threads, patience=PATIENCE, clock=clock),
            storage=FilesystemCapacity(path=settings.root, threads=threads).read,
        )
    finally:
        volume_threads.close()
        last_words.close()


def _find_home() -> Path | None:
    home = os.environ.get("HOME")
    return Path(home) if home else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCgroupPorts:
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
