"""The image manager as pods see it: an image that it has returned is not collected before it is used."""

from collections.abc import Callable

from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.images.holds import ImageHolds
from klet.images.manager import ImageManager
from klet.model.causes import CauseId
from klet.model.images import ImageUse, ImageUseKind, MissingImage, PresentImage
from klet.model.pods import uid_of
from klet.model.stopping_pods import StoppingPods
from klet.wire import cri_v1_pb2 as cri


class HeldImages:
    """Gets images onto the node, and holds them for the pods that asked."""

    def __init__(self, *, images: ImageManager, holds: ImageHolds, stopping_pods: StoppingPods, clock: Clock) -> None:
        self._images = images
        self._holds = holds
        self._stopping_pods = stopping_pods
        self._clock = clock

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        sandbox: cri.PodSandboxConfig,
        handler: str = "",
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> PresentImage | MissingImage:
        """Return the image of a container as `ImageManager.ensure` does; one that was removed meanwhile is got again.

        Raises PodStopping when the pod is to stop.
        """
        use = ImageUse(
            kind=ImageUseKind.STARTING,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            uid=uid_of(pod),
            container=container.name,
        )
        while True:
            with self._holds.watch() as removed:
                found = await self._images.ensure(
                    pod, container, sandbox=sandbox, handler=handler, before_pull=before_pull, parent=parent
                )
            if isinstance(found, MissingImage):
                return found
            now, at = self._clock.now(), self._clock.monotonic()
            if found.ref not in removed and self._holds.hold(found.ref, use, since=now, at=at):
                return found
            await self._stopping_pods.run(uid_of(pod), self._holds.until_removed(found.ref))
