"""Makes sure that a container's image is on the node before it starts (image manager, EnsureImageExists)."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.times import Duration
from klet.cri.errors import Code, CriError, PullFailure, read_pull_failure
from klet.cri.port import ImageService
from klet.errors import KletError
from klet.images.keyring import FittingLogins
from klet.images.metrics import ImageMetrics, size_label
from klet.images.names import ImageNameError, repository_of, with_default_tag
from klet.images.pull_backoff import PullBackoff
from klet.model.causes import CauseId, CauseRecorder, Measurement
from klet.model.error_text import join_errors
from klet.model.foreign_text import shorten
from klet.model.images import ImageUser, MissingImage, PresentImage
from klet.model.pods import uid_of
from klet.model.pull_times import PullTimes
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.stopping_pods import StoppingPods
from klet.wire import cri_v1_pb2 as cri

DECIDER = "images.manager"
SEEN_FOR = timedelta(seconds=1)
"""How long an image that was there still is: pods that start together often have the same."""
SHOW_BACKOFF = timedelta(seconds=1)
"""How long a failed pull is shown as that; then the pod is looked at again, and shown as backing off."""


class RegistryLogins(Protocol):
    """Knows how to log in to the registries that pods pull from."""

    async def find(self, pod: Pod, repository: str) -> FittingLogins:
        """Return those for a repository; raises KletError if they cannot be read."""
        ...


class _Wanted(Struct, frozen=True):
    """An image as the runtime is asked for it, and the sandbox that it is pulled for."""

    spec: cri.ImageSpec
    sandbox: cri.PodSandboxConfig

    @property
    def name(self) -> str:
        return self.spec.image

    @property
    def key(self) -> tuple[str, str]:
        """What identifies an image: a runtime may keep one for each of its handlers."""
        return self.spec.image, self.spec.runtime_handler


class _Seen(Struct, frozen=True):
    image: cri.Image
    until: float


class ImageManager:
    """Finds images, and pulls them according to the pull policy."""

    def __init__(
        self,
        *,
        images: ImageService,
        logins: RegistryLogins,
        backoff: PullBackoff,
        stopping_pods: StoppingPods,
        recorder: CauseRecorder,
        clock: Clock,
        metrics: ImageMetrics,
        times: PullTimes,
    ) -> None:
        self._times = times
        self._metrics = metrics
        self._images = images
        self._logins = logins
        self._backoff = backoff
        self._stopping_pods = stopping_pods
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._seen: dict[tuple[str, str], _Seen] = {}

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
        named to a runtime that keeps images for each of its handlers. A pull may take long: `before_pull` is called
        first. Raises PodStopping when the pod is to stop.
        """
        return await self._stopping_pods.run(
            uid_of(pod), self._ensure(pod, container, sandbox, handler, before_pull, parent)
        )

    async def image_removed(self, image: str) -> None:
        """Forget that an image was there."""
        self._seen = {key: seen for key, seen in self._seen.items() if seen.image.id != image}

    async def keep_images(self, images: Collection[str], *, before: datetime) -> None:  # noqa: ARG002 - it is short
        """Forget that other images than these were there."""
        self._seen = {key: seen for key, seen in self._seen.items() if seen.image.id in images}

    async def _ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        sandbox: cri.PodSandboxConfig,
        handler: str,
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> PresentImage | MissingImage:
        policy = container.image_pull_policy
        try:
            name = with_default_tag(container.image)
        except ImageNameError as error:
            self._metrics.note_request(policy, is_present=None, needs_pull=None)
            message = f'Failed to apply default image tag "{container.image}": {error}'
            missing = MissingImage("InvalidImageName", message)
            return self._missing(pod, container, Reason.INSPECT_FAILED, missing, parent)
        spec = cri.ImageSpec(image=name, annotations=dict(pod.metadata.annotations), runtime_handler=handler)
        wanted = _Wanted(spec, sandbox)
        try:
            found = self._seen_lately(wanted) or await self._inspect(wanted)
        except CriError as error:
            self._metrics.note_request(policy, is_present=None, needs_pull=None)
            missing = MissingImage("ImageInspectError", f'Failed to inspect image "": {error}')
            return self._missing(pod, container, Reason.INSPECT_FAILED, missing, parent)
        needs_pull = policy == "Always" or (found is None and policy != "Never")
        self._metrics.note_request(policy, is_present=found is not None, needs_pull=needs_pull)
        if policy == "Never" and found is None:
            text = f'Container image "{container.image}" is not present with pull policy of Never'
            missing = MissingImage("ErrImageNeverPull", text)
            return self._missing(pod, container, Reason.ERR_IMAGE_NEVER_PULL, missing, parent)
        if found is not None and policy != "Always":
            # Upstream's text without the check of credentials, which klet does not make either.
            text = f'Container image "{container.image}" already present on machine'
            self._decisions.for_pod(pod, container.name).record(
                Reason.PULLED, text, measurements={"alreadyPresent": True}, parent=parent
            )
            return _present(found)
        try:
            fitting = await self._logins.find(pod, repository_of(container.image))
        except KletError as error:
            return self._missing(pod, container, Reason.FAILED, MissingImage("ErrImagePull", str(error)), parent)
        if (last := self._backoff.failure_in_force(uid_of(pod), name, now=self._clock.now())) is not None:
            text = f'Back-off pulling image "{container.image}"'
            self._decisions.for_pod(pod, container.name).record(
                Reason.BACK_OFF_PULLING_IMAGE,
                text,
                next_step="pull again when the back-off has passed",
                next_at=last.retry_at,
                parent=parent,
            )
            return MissingImage("ImagePullBackOff", f"{text}: {last.reason}: {last.message}", last.retry_at)
        before_pull()
        return await self._pull(pod, container, wanted, fitting, parent)

    async def _inspect(self, wanted: _Wanted) -> cri.Image | None:
        asked = self._clock.monotonic()
        answer = await self._images.image_status(cri.ImageStatusRequest(image=wanted.spec))
        if not answer.image.id:
            return None
        self._seen[wanted.key] = _Seen(answer.image, asked + SEEN_FOR.total_seconds())
        return answer.image

    def _seen_lately(self, wanted: _Wanted) -> cri.Image | None:
        now = self._clock.monotonic()
        self._seen = {each: seen for each, seen in self._seen.items() if now < seen.until}
        seen = self._seen.get(wanted.key)
        return None if seen is None else seen.image

    async def _pull(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        wanted: _Wanted,
        fitting: FittingLogins,
        parent: CauseId | None,
    ) -> PresentImage | MissingImage:
        about = self._decisions.for_pod(pod, container.name)
        about.record(Reason.PULLING, f'Pulling image "{container.image}"', parent=parent)
        started = self._clock.monotonic()
        try:
            try:
                await self._pull_with_any(wanted, fitting)
            finally:
                self._times.note(uid_of(pod), began=started, ended=self._clock.monotonic())
            pulled = await self._inspect(wanted)
        except (CriError, _Refused) as error:
            text = _text_of(error)
            missing = explain_failed_pull(container.image, text)
            now = self._clock.now()
            retry_at = now + self._backoff.failed(uid_of(pod), wanted.name, missing, now=now)
            failed = f'Failed to pull image "{container.image}": {text}'
            tried: dict[str, Measurement] = {
                "logins": len(fitting.logins),
                "missing pull secrets": ", ".join(fitting.missing),
            }
            about.record(
                Reason.FAILED,
                failed,
                measurements=tried,
                next_step="pull again after a back-off",
                next_at=retry_at,
                parent=parent,
            )
            return replace(missing, retry_at=min(retry_at, now + SHOW_BACKOFF))
        self._backoff.pulled(uid_of(pod), wanted.name)
        if pulled is None:
            missing = MissingImage("ErrImagePull", f'image "{container.image}" is not there after it was pulled')
            return self._missing(pod, container, Reason.FAILED, missing, parent)
        self._metrics.pulls.observe(self._clock.monotonic() - started, size_label(pulled.size))
        took = Duration.of(timedelta(milliseconds=round((self._clock.monotonic() - started) * 1000))).wire()
        text = (
            f'Successfully pulled image "{container.image}" in {took} ({took} including waiting). '
            f"Image size: {pulled.size} bytes."
        )
        about.record(Reason.PULLED, text, parent=parent)
        return _present(pulled)

    async def _pull_with_any(self, wanted: _Wanted, fitting: FittingLogins) -> None:
        """Pull with each login in turn until one is accepted. As upstream, never without a login if there is one."""
        spec, sandbox = wanted.spec, wanted.sandbox
        if not fitting.logins:
            await self._images.pull_image(cri.PullImageRequest(image=spec, sandbox_config=sandbox))
            return
        failures = []
        for login in fitting.logins:
            auth = cri.AuthConfig(username=login.username, password=login.password)
            try:
                await self._images.pull_image(cri.PullImageRequest(image=spec, auth=auth, sandbox_config=sandbox))
            except CriError as error:
                failures.append(_text_of(error))
            else:
                return
        raise _Refused(shorten(join_errors(failures)))

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


class _Refused(KletError):
    """No login was let in."""


def explain_failed_pull(image: str, text: str) -> MissingImage:
    """Return the waiting state of a failed pull; two kinds of failure have a reason of their own."""
    match failure := read_pull_failure(text):
        case None:
            return MissingImage("ErrImagePull", text)
        case PullFailure.REGISTRY_UNAVAILABLE:
            why = "the registry is unavailable"
        case PullFailure.SIGNATURE_VALIDATION_FAILED:
            why = "the signature validation failed"
    message = f"image pull failed for {image} because {why}{text.removeprefix(failure)}"
    return MissingImage(str(failure), message)


def _text_of(error: KletError) -> str:
    return error.message if isinstance(error, CriError) and error.code is Code.UNKNOWN else str(error)


def _present(image: cri.Image) -> PresentImage:
    user = ImageUser(image.uid.value if image.HasField("uid") else None, image.username)
    return PresentImage(image.id, user)
