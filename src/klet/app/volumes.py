"""What the volumes of this node are made of."""

from dataclasses import dataclass
from typing import Protocol

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.objects import NodeObjects
from klet.app.settings import AgentSettings
from klet.model.roles import NodeResources, ObjectChanges, ReferredObjects
from klet.volumes.build import VolumePorts, build_plugins
from klet.volumes.directories import PodDirectories
from klet.volumes.host_mounter import HostMounter, find_noswap
from klet.volumes.manager import VolumeDisk
from klet.volumes.names import Layout
from klet.volumes.orphans import PodRemover
from klet.volumes.plugins.base import VolumePlugin

VOLUME_THREADS = 16
"""Volumes have threads of their own: a file system that hangs takes some of them, and nobody else's."""


class VolumeDirectories(VolumeDisk, PodRemover, Protocol):
    """Everything that is asked of the pods' directories about volumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVolumes:
    """What the volumes of a node are made of."""

    plugins: tuple[VolumePlugin, ...]
    directories: VolumeDirectories
    objects: ReferredObjects
    trust: ObjectChanges


async def open_volumes(
    settings: AgentSettings, objects: NodeObjects, *, node: NodeResources, threads: Threads, clock: Clock
) -> NodeVolumes:
    """Those of this machine."""
    ports = VolumePorts(
        root=settings.root,
        objects=objects.referred,
        tokens=objects.tokens,
        trust=objects.trust,
        node=node,
        mounter=HostMounter(),
        threads=threads,
        clock=clock,
        has_api=objects.has_api,
        noswap=await threads.run(find_noswap, settings.root),
    )
    return build_volumes(ports, objects)


def build_volumes(ports: VolumePorts, objects: NodeObjects) -> NodeVolumes:
    return NodeVolumes(
        plugins=build_plugins(ports),
        directories=PodDirectories(layout=Layout(ports.root), threads=ports.threads),
        objects=objects.referred,
        trust=objects.trust,
    )
