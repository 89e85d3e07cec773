"""The volumes of this node: what they are made of, and how the parts that make pods of them see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.app.objects import NodeObjects, ReferredObjects
from klet.app.settings import AgentSettings
from klet.model.pods import PodUID
from klet.runtime.config.mounts import HostVolume
from klet.runtime.environment.env_sources import NodeResources
from klet.volumes.build import VolumePorts, build_plugins
from klet.volumes.directories import PodDirectories
from klet.volumes.host_mounter import HostMounter, find_noswap
from klet.volumes.keeper import ChangedObjects
from klet.volumes.manager import VolumeDisk, VolumeManager
from klet.volumes.names import Layout
from klet.volumes.orphans import OrphanedPods, PodRemover
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
    trust: ChangedObjects


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


class PodVolumes:
    """The volumes of pods and the objects that they show, from a pod's first sync to its end."""

    def __init__(self, *, manager: VolumeManager, objects: ReferredObjects, orphans: OrphanedPods) -> None:
        self._manager = manager
        self._objects = objects
        self._orphans = orphans

    def register(self, pod: Pod) -> None:
        self._objects.register(pod)

    def refresh(self, pod: Pod) -> None:
        self._manager.process(pod)

    async def until_mounted(self, pod: Pod) -> None:
        await self._manager.wait_for_attach_and_mount(pod)

    def of_pod(self, uid: PodUID) -> Mapping[str, HostVolume]:
        return {
            name: HostVolume(
                volume.path,
                read_only=volume.attributes.read_only,
                relabels=volume.attributes.managed and volume.attributes.relabels,
            )
            for name, volume in self._manager.mounted_volumes(uid).items()
        }

    async def release(self, uid: PodUID) -> None:
        """Take them down; only then nobody needs what they show."""
        await self._manager.wait_for_unmount(uid)
        self._objects.unregister(uid)

    async def remove(self, uid: PodUID) -> None:
        """Take down and remove what is left of a pod that no source has."""
        await self._orphans.remove(uid)
        self._objects.unregister(uid)
