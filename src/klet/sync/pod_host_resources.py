"""What a pod holds on the host besides its containers and cgroup, and in which order that is released."""

from typing import Protocol

from klet.api.pod import Pod
from klet.model.pods import PodUID
from klet.runtime.config.sub_paths import SubPaths
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.volumes.pod_volumes import PodVolumes


class PodDirectoryFiles(Protocol):
    """The part of the pod files that is about whole pods."""

    async def prepare_pod(self, pod: Pod) -> None: ...

    async def pods_on_disk(self) -> frozenset[PodUID]: ...

    async def remove_pod(self, uid: PodUID) -> None: ...


class PodHostResources:
    """A pod's directory, volumes, sub-path mounts and user namespace."""

    def __init__(
        self,
        *,
        files: PodDirectoryFiles,
        volumes: PodVolumes,
        sub_paths: SubPaths,
        user_namespaces: UserNamespaceManager,
    ) -> None:
        self._files = files
        self._volumes = volumes
        self._sub_paths = sub_paths
        self._user_namespaces = user_namespaces

    async def prepare_pod(self, pod: Pod) -> None:
        await self._files.prepare_pod(pod)

    async def release_volumes(self, uid: PodUID) -> None:
        """Unmount the volumes of a pod that has ended; its directory stays until no source has the pod."""
        await self._sub_paths.clean(uid)
        await self._volumes.release(uid)

    def release_unused(self) -> None:
        """Release what a previous run left and no pod has. Called once all pods of this node are known."""
        self._volumes.release_unused()

    async def release_ids(self, uid: PodUID) -> None:
        await self._user_namespaces.release(uid)

    async def pods_on_disk(self) -> frozenset[PodUID]:
        return await self._files.pods_on_disk()

    async def remove_pod(self, uid: PodUID) -> None:
        await self._sub_paths.clean(uid)
        await self._volumes.remove(uid)
        await self._files.remove_pod(uid)
        self._user_namespaces.forget(uid)
