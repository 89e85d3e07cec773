"""The volumes of one pod, as its sync sees them: from its first pass to its end."""

from collections.abc import Mapping

from klet.api.pod import Pod
from klet.model.pods import PodUID
from klet.model.roles import ReferredObjects
from klet.model.volumes import HostVolume
from klet.volumes.manager import VolumeManager
from klet.volumes.orphans import OrphanedPods


class PodVolumes:
    """The volumes of pods and the objects that they show."""

    def __init__(self, *, manager: VolumeManager, objects: ReferredObjects, orphans: OrphanedPods) -> None:
        self._manager = manager
        self._objects = objects
        self._orphans = orphans

    def register(self, pod: Pod) -> None:
        """Register the pod, which is about to use the objects that it refers to."""
        self._objects.register(pod)

    def refresh(self, pod: Pod) -> None:
        """Have the volumes of a pod as its spec has them now, without waiting for that."""
        self._manager.process(pod)

    async def until_mounted(self, pod: Pod) -> None:
        """Return when the pod has every volume that it uses; raises WaitFailed."""
        await self._manager.wait_for_attach_and_mount(pod)

    def of_pod(self, uid: PodUID) -> Mapping[str, HostVolume]:
        """Return the mounted volumes, by their names in the pod."""
        return {
            name: HostVolume(
                volume.path,
                read_only=volume.attributes.read_only,
                relabels=volume.attributes.managed and volume.attributes.relabels,
                gid=volume.gid,
                inner_name=volume.inner_name,
                device=volume.device,
            )
            for name, volume in self._manager.mounted_volumes(uid).items()
        }

    def release_unused(self) -> None:
        """Release what a previous run left and no pod has. Called once all pods of this node are known."""
        self._manager.release_unused()

    async def release(self, uid: PodUID) -> None:
        """Unmount them; only then are the objects that they show free."""
        await self._manager.wait_for_unmount(uid)
        self._objects.unregister(uid)

    async def remove(self, uid: PodUID) -> None:
        """Unmount and remove what is left of a pod that no source has."""
        await self._orphans.remove(uid)
        self._objects.unregister(uid)
