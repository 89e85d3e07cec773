"""Opens what volumes need of the machine: mounts, quotas, disks, and what measures them."""

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.ports import NodeObjects, NodeVolumes
from klet.app.settings import AgentSettings
from klet.host.disk_usage import HostDiskMeter, QuotaReader
from klet.host.loop_devices import LoopDevices
from klet.host.project_files import ProjectFilePaths
from klet.host.project_quotas import HostProjectQuotas, NoQuotas
from klet.host.quotactl import KernelProjects, has_quotactl_fd
from klet.host.storage.iscsi_sessions import IscsiSessions
from klet.host.storage.scsi import DiskTree
from klet.host.storage.tools import HostTools, search_path
from klet.model.causes import CauseRecorder
from klet.model.roles import NodeResources
from klet.stats.disk import FilesystemMeter
from klet.volumes.build import VolumePorts, build_flex_finder, build_plugins
from klet.volumes.csi.build import CsiPorts, build_meter
from klet.volumes.directories import PodDirectories
from klet.volumes.host_devices import HostDevices
from klet.volumes.host_mounter import HostMounter, find_noswap
from klet.volumes.names import Layout
from klet.volumes.plugin_board import PluginBoard
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.quotas import ProjectQuotas
from klet.volumes.storage_plugins import StoragePorts


def open_meter(
    root: Path, csi: CsiPorts | None, quotas: QuotaReader, *, threads: Threads, clock: Clock
) -> FilesystemMeter:
    """Return what measures disks; volumes of CSI drivers, too, if there can be some."""
    meter = HostDiskMeter(threads=threads, clock=clock, quotas=quotas)
    return meter if csi is None else build_meter(meter, csi, root=root, threads=threads, clock=clock)


def open_quotas(settings: AgentSettings, threads: Threads, clock: Clock) -> HostProjectQuotas | NoQuotas:
    if not settings.has_project_quotas:
        return NoQuotas()
    kernel = KernelProjects(has_quotactl_fd=has_quotactl_fd())
    return HostProjectQuotas(files=ProjectFilePaths(), kernel=kernel, threads=threads, clock=clock)


async def open_volumes(
    settings: AgentSettings,
    objects: NodeObjects,
    *,
    node: NodeResources,
    in_user_namespace: bool,
    quotas: ProjectQuotas,
    recorder: CauseRecorder,
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
        storage=StoragePorts(
            tools=HostTools(search=search_path(os.environ)), disks=DiskTree(), sessions=IscsiSessions()
        ),
        devices=HostDevices(root=settings.root, loops=LoopDevices(), threads=threads, clock=clock),
        quotas=quotas,
        recorder=recorder,
        threads=threads,
        clock=clock,
        has_api=objects.has_api,
        noswap=await threads.run(find_noswap, settings.root, in_user_namespace=in_user_namespace),
        has_images=settings.has_image_volumes,
        csi=objects.csi,
    )
    board = PluginBoard(build_plugins(ports))
    finder = build_flex_finder(ports, settings.flex_drivers, board)
    # Now, so that what a previous run has left of their volumes is known from the beginning.
    await finder.probe()
    return replace(build_volumes(ports, objects, board), flex=finder)


def build_volumes(ports: VolumePorts, objects: NodeObjects, plugins: Iterable[VolumePlugin]) -> NodeVolumes:
    return NodeVolumes(
        plugins=plugins,
        directories=PodDirectories(layout=Layout(ports.root), threads=ports.threads),
        layout=Layout(ports.root),
        devices=ports.devices,
        claims=objects.claims,
        find_node=objects.find_node,
        node=objects.node,
        objects=objects.referred,
        trust=objects.trust,
        certificates=objects.certificates,
        noswap=ports.noswap,
    )
