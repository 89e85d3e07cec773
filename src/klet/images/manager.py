"""Makes sure that a container's image is on the node before it starts (image manager, EnsureImageExists)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.validation.rendering import go_quote
from klet.cri.errors import CriError
from klet.errors import KletError
from klet.images.keyring import FittingLogins
from klet.images.metrics import ImageMetrics
from klet.images.names import ImageNameError, repository_of, with_default_tag
from klet.images.present_images import NodeImages, WantedImage, as_present
from klet.images.pulled.open_pull import PullRecorder
from klet.images.pulled.verification import Check
from klet.images.puller import DECIDER, ImagePuller
from klet.images.sources import LoginSource
from klet.model.causes import CauseId, CauseRecorder
from klet.model.images import MissingImage, PresentImage
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.stopping_pods import StoppingPods
from klet.wire import cri_v1_pb2 as cri

_ALWAYS: Final = "Always"
_NEVER: Final = "Never"


class RegistryLogins(Protocol):
    """Knows how to log in to the registries that pods pull from."""

    async def find(self, pod: Pod, image: str, repository: str) -> FittingLogins:
        """Return those for an image and its repository; raises KletError if they cannot be read."""
        ...


class _Request(Struct, frozen=True):
    """What one container asks for."""

    pod: Pod
    container: Container | EphemeralContainer
    wanted: WantedImage
    logins: "PodLogins"
    parent: CauseId | None

    @property
    def policy(self) -> str:
        return self.container.image_pull_policy


class PodLogins:
    """The logins of one pod for one image, looked up when they are needed, and once."""

    def __init__(self, find: Callable[[], Awaitable[FittingLogins]]) -> None:
        self._find = find
        self._found: FittingLogins | None = None

    async def get(self) -> FittingLogins:
        """Raise KletError if they cannot be read."""
        if self._found is None:
            self._found = await self._find()
        return self._found

    async def sources(self) -> Sequence[LoginSource]:
        return [sourced.source for sourced in (await self.get()).logins]


class ImageManager:
    """Finds images, and has them pulled according to the pull policy and the records of earlier pulls."""

    def __init__(
        self,
        *,
        node_images: NodeImages,
        logins: RegistryLogins,
        records: PullRecorder,
        puller: ImagePuller,
        stopping_pods: StoppingPods,
        recorder: CauseRecorder,
        metrics: ImageMetrics,
    ) -> None:
        self._node_images = node_images
        self._logins = logins
        self._records = records
        self._puller = puller
        self._stopping_pods = stopping_pods
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._metrics = metrics

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
        """Return the image of a container, pulled if needed, or why it is missing.

        The request names the sandbox for which the runtime pulls: annotations of the pod may choose how. A `handler` is
        named to a runtime that keeps images for each of its handlers. A pull, and what is asked for its logins, may
        take long: `before_pull` is called first. Raises PodStopping when the pod is to stop.
        """
        image = container.image
        try:
            name = with_default_tag(image)
        except ImageNameError as error:
            self._metrics.note_request(container.image_pull_policy, is_present=None, needs_pull=None)
            text = f"Failed to apply default image tag {go_quote(image)}: {error}"
            missing = MissingImage("InvalidImageName", text)
            return self._missing(pod, container, Reason.INSPECT_FAILED, missing, parent)
        spec = cri.ImageSpec(image=name, annotations=dict(pod.metadata.annotations), runtime_handler=handler)
        logins = PodLogins(lambda: self._logins.find(pod, image, repository_of(image)))
        request = _Request(pod, container, WantedImage(image, spec, sandbox), logins, parent)
        return await self._stopping_pods.run(uid_of(pod), self._ensure(request, before_pull))

    async def _ensure(self, request: _Request, before_pull: Callable[[], None]) -> PresentImage | MissingImage:
        policy, asked = request.policy, request.wanted.asked
        await self._records.prepare()
        try:
            found = await self._find(request)
        except CriError as error:
            self._metrics.note_request(policy, is_present=None, needs_pull=None)
            missing = MissingImage("ImageInspectError", f'Failed to inspect image "": {error}')
            return self._refuse(request, Reason.INSPECT_FAILED, missing)
        try:
            check = await self._check(request, found)
        except KletError as error:
            self._metrics.note_request(policy, is_present=True, needs_pull=None)
            return self._refuse(request, Reason.FAILED, MissingImage("ErrImagePull", str(error)))
        is_usable = found is not None and policy != _ALWAYS and not (check is not None and check.must_pull)
        self._metrics.note_request(
            policy,
            # As upstream's, which does not look for an image that it pulls in any case.
            is_present=None if policy == _ALWAYS else found is not None,
            needs_pull=None if policy == _NEVER and found is None else not is_usable,
        )
        if found is not None and is_usable:
            self._note_present(request, check)
            return as_present(found)
        if policy == _NEVER:
            text = f'Container image "{asked}" is not present with pull policy of Never'
            return self._refuse(request, Reason.ERR_IMAGE_NEVER_PULL, MissingImage("ErrImageNeverPull", text))
        if not self._puller.holds_back(request.pod, request.wanted):
            # Before the logins, too: a credential provider may take a minute.
            before_pull()
        try:
            fitting = await request.logins.get()
        except KletError as error:
            return self._refuse(request, Reason.FAILED, MissingImage("ErrImagePull", str(error)))
        return await self._puller.pull(
            request.pod,
            request.container.name,
            request.wanted,
            fitting,
            before=found.id if found is not None else "",
            parent=request.parent,
        )

    async def _find(self, request: _Request) -> cri.Image | None:
        """Return the image that is there. Raises CriError, unless the image is pulled in any case."""
        try:
            return await self._node_images.find(request.wanted)
        except CriError:
            if request.policy != _ALWAYS:
                raise
            return None

    async def _check(self, request: _Request, found: cri.Image | None) -> Check | None:
        """Return whether the pod may use the image that is there; None if that is not asked. Raises KletError."""
        if found is None or request.policy == _ALWAYS:
            return None
        return await self._records.check(request.wanted.asked, found.id, request.logins.sources)

    def _note_present(self, request: _Request, check: Check | None) -> None:
        text = f'Container image "{request.wanted.asked}" already present on machine'
        if check is not None:
            text = f"{text} and can be accessed by the pod"
        self._decisions.for_pod(request.pod, request.container.name).record(
            Reason.PULLED, text, measurements={"alreadyPresent": True}, parent=request.parent
        )

    def _refuse(self, request: _Request, decision: Reason, missing: MissingImage) -> MissingImage:
        return self._missing(request.pod, request.container, decision, missing, request.parent)

    def _missing(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        decision: Reason,
        missing: MissingImage,
        parent: CauseId | None,
    ) -> MissingImage:
        about = self._decisions.for_pod(pod, container.name)
        about.record(decision, missing.message, next_step="try again at the next sync", parent=parent)
        return missing
