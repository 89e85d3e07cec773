"""Builds the volume plugins that use tools of the machine: for disks, and for servers on the network."""

from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.storage.disk_formats import DiskFormats
from klet.host.storage.iscsi_sessions import IscsiSessions
from klet.host.storage.mount_tool import MountTool
from klet.host.storage.scsi import DiskTree
from klet.host.storage.tools import HostTools
from klet.model.roles import ObjectReader
from klet.volumes.device_mounts import DeviceMounts, MountPoints, Unmounter
from klet.volumes.fc import FcDisks
from klet.volumes.iscsi.attacher import IscsiAttacher
from klet.volumes.local_directories import LocalDirectories
from klet.volumes.names import Layout
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.plugins.fc import FcPlugin
from klet.volumes.plugins.iscsi import IscsiPlugin
from klet.volumes.plugins.nfs import NfsPlugin


class StoragePorts(Struct, frozen=True, kw_only=True):
    """What volumes on other machines, and on disks, need from outside."""

    tools: HostTools
    disks: DiskTree
    sessions: IscsiSessions
    table: Path = Path("/proc/self/mountinfo")


class StorageParts(Struct, frozen=True, kw_only=True):
    """What the plugins of this module are made of."""

    layout: Layout
    storage: StoragePorts
    points: MountPoints
    directories: LocalDirectories
    objects: ObjectReader
    threads: Threads
    clock: Clock

    @property
    def mount_tool(self) -> MountTool:
        return MountTool(tools=self.storage.tools, threads=self.threads, table=self.storage.table)

    @property
    def unmounter(self) -> Unmounter:
        return Unmounter(points=self.points, threads=self.threads)


def build_device_mounts(parts: StorageParts) -> DeviceMounts:
    return DeviceMounts(
        directories=parts.directories,
        disks=DiskFormats(tools=parts.storage.tools, mounts=parts.mount_tool),
        points=parts.points,
        unmounter=parts.unmounter,
        threads=parts.threads,
    )


def build_storage_plugins(parts: StorageParts, mounts: DeviceMounts) -> tuple[VolumePlugin, ...]:
    """Return the plugins of nfs, iscsi and fc."""
    layout, storage, threads, clock = parts.layout, parts.storage, parts.threads, parts.clock
    attacher = IscsiAttacher(
        tools=storage.tools, disks=storage.disks, sessions=storage.sessions, threads=threads, clock=clock
    )
    fc_disks = FcDisks(tools=storage.tools, disks=storage.disks, threads=threads, clock=clock)
    return (
        NfsPlugin(layout=layout, mounter=parts.mount_tool, unmounter=parts.unmounter, threads=threads),
        IscsiPlugin(layout=layout, mounts=mounts, threads=threads, attacher=attacher, objects=parts.objects),
        FcPlugin(layout=layout, mounts=mounts, threads=threads, disks=fc_disks),
    )
