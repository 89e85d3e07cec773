"""The images of one pod: those of its containers, and those that are its volumes."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.model.causes import CauseId
from klet.model.images import MissingImage, PresentImage
from klet.runtime import errors
from klet.runtime.config.container_planner import ReadySandbox
from klet.runtime.start_turns import PodTurn
from klet.wire import cri_v1_pb2 as cri

VolumeImage: TypeAlias = PresentImage | MissingImage


class ImageEnsurer(Protocol):
    """Gets an image onto the node, or returns why it is missing."""

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        sandbox: cri.PodSandboxConfig,
        handler: str = "",
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> PresentImage | MissingImage: ...


class PodImages:
    """Gets the images of a pod onto the node. A pull may take long, so the pod gives its turn back for it."""

    def __init__(self, *, images: ImageEnsurer, has_volumes: bool) -> None:
        self._images = images
        self._has_volumes = has_volumes
        """Gate ImageVolume."""

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        sandbox: ReadySandbox,
        *,
        turn: PodTurn,
        parent: CauseId | None,
    ) -> PresentImage | MissingImage:
        return await self._images.ensure(
            pod,
            container,
            sandbox=sandbox.sandbox_config,
            handler=sandbox.image_handler,
            before_pull=turn.give_back,
            parent=parent,
        )

    async def ensure_volumes(
        self, pod: Pod, sandbox: ReadySandbox, *, turn: PodTurn, parent: CauseId | None
    ) -> Mapping[str, VolumeImage]:
        """Get the image of each volume, whether a container mounts it or not; return them by volume."""
        found: dict[str, VolumeImage] = {}
        for volume in pod.spec.volumes if self._has_volumes else ():
            if volume.image is not None:
                # Such an image belongs to the pod and to no container, so its Events name none.
                wanted = Container(name="", image=volume.image.reference, image_pull_policy=volume.image.pull_policy)
                found[volume.name] = await self.ensure(pod, wanted, sandbox, turn=turn, parent=parent)
        return found


def volume_images(container: Container | EphemeralContainer, volumes: Mapping[str, VolumeImage]) -> dict[str, str]:
    """Return the references of the images that a container mounts, by volume; raises StartError for a missing one."""
    mounted = {mount.name for mount in container.volume_mounts}
    refs = {}
    for name, found in volumes.items():
        if name not in mounted:
            continue
        if isinstance(found, MissingImage):
            raise errors.StartError(found.reason, found.reason, until=found.retry_at)
        refs[name] = found.ref
    return refs
