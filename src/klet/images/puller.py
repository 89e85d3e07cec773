"""Pulls one image for one pod: back-off, the record of it, and the words in which users read how it went."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.api.times import Duration
from klet.cri.errors import CriError, PullFailure, read_pull_failure
from klet.host.errors import FileError
from klet.images.keyring import FittingLogins
from klet.images.metrics import ImageMetrics, size_label
from klet.images.present_images import NodeImages, WantedImage, as_present
from klet.images.pull_backoff import PullBackoff
from klet.images.pulled.open_pull import OpenPull, PullRecorder
from klet.images.registry_pulls import PullDone, PullFailed, RegistryPulls
from klet.model.causes import CauseId, CauseRecorder, Measurement
from klet.model.images import MissingImage, PresentImage
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder, SubjectRecorder
from klet.wire import cri_v1_pb2 as cri

DECIDER: Final = "images.manager"
SHOW_BACKOFF: Final = timedelta(seconds=1)
"""How long a failed pull is shown as that; then the pod is looked at again, and shown as backing off."""


class ImagePuller:
    """Gets images that are not on the node, or not for this pod."""

    def __init__(
        self,
        *,
        registry: RegistryPulls,
        node_images: NodeImages,
        records: PullRecorder,
        backoff: PullBackoff,
        recorder: CauseRecorder,
        metrics: ImageMetrics,
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._node_images = node_images
        self._records = records
        self._backoff = backoff
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._metrics = metrics
        self._clock = clock

    def holds_back(self, pod: Pod, wanted: WantedImage) -> bool:
        """Return whether the image is not pulled now, since that has failed lately."""
        return self._failure_in_force(pod, wanted) is not None

    async def pull(
        self,
        pod: Pod,
        container: str,
        wanted: WantedImage,
        fitting: FittingLogins,
        *,
        before: str,
        parent: CauseId | None,
    ) -> PresentImage | MissingImage:
        """Return the image, or why it is missing. `before` is the image that is there under the name, if any."""
        about = self._decisions.for_pod(pod, container)
        if (held_back := self._find_backoff(pod, wanted, about, parent)) is not None:
            return held_back
        try:
            async with self._records.pulling(wanted.asked, before=before) as record:
                about.record(Reason.PULLING, f'Pulling image "{wanted.asked}"', parent=parent)
                try:
                    done, image = await self._pull(pod, container, wanted, fitting, record, before, parent)
                except (PullFailed, CriError) as error:
                    return self._note_failure(pod, wanted, str(error), _tried(fitting), about, parent)
        except FileError as error:
            text = f'Failed to record image pull intent for container image "{wanted.asked}": {error}'
            about.record(Reason.FAILED, text, next_step="try again at the next sync", parent=parent)
            return MissingImage("ErrImagePull", text)
        self._backoff.pulled(uid_of(pod), wanted.asked)
        if image is None:
            text = f'image "{wanted.asked}" is not there after it was pulled'
            about.record(Reason.FAILED, text, next_step="try again at the next sync", parent=parent)
            return MissingImage("ErrImagePull", text)
        # With the wait, as upstream: it is how long the pod has waited for its image.
        self._metrics.pulls.observe(done.waited + done.took, size_label(image.size))
        about.record(Reason.PULLED, describe_pull(wanted.asked, done, image.size), parent=parent)
        return as_present(image)

    async def _pull(
        self,
        pod: Pod,
        container: str,
        wanted: WantedImage,
        fitting: FittingLogins,
        record: OpenPull,
        before: str,
        parent: CauseId | None,
    ) -> tuple[PullDone, cri.Image | None]:
        try:
            done = await self._registry.pull(pod, container, wanted, fitting.logins, parent=parent)
        except PullFailed as error:
            # A runtime may fail after it has stored the image, and say so with any code.
            if error.is_certain and await self._is_unchanged(wanted, before):
                await record.failed()
            raise
        image = await self._node_images.look(wanted)
        if image is not None:
            await record.succeeded(image.id, done.source)
        return done, image

    async def _is_unchanged(self, wanted: WantedImage, before: str) -> bool:
        """Return whether the same image is there as before the pull, or none still."""
        try:
            image = await self._node_images.look(wanted)
        except CriError:
            return False
        return (image.id if image is not None else "") == before

    def _find_backoff(
        self, pod: Pod, wanted: WantedImage, about: SubjectRecorder, parent: CauseId | None
    ) -> MissingImage | None:
        last = self._failure_in_force(pod, wanted)
        if last is None:
            return None
        text = f'Back-off pulling image "{wanted.asked}"'
        about.record(
            Reason.BACK_OFF_PULLING_IMAGE,
            text,
            next_step="pull again when the back-off has passed",
            next_at=last.retry_at,
            parent=parent,
        )
        return MissingImage("ImagePullBackOff", f"{text}: {last.reason}: {last.message}", last.retry_at)

    def _failure_in_force(self, pod: Pod, wanted: WantedImage) -> MissingImage | None:
        return self._backoff.failure_in_force(uid_of(pod), wanted.asked, now=self._clock.now())

    def _note_failure(
        self,
        pod: Pod,
        wanted: WantedImage,
        text: str,
        tried: Mapping[str, Measurement],
        about: SubjectRecorder,
        parent: CauseId | None,
    ) -> MissingImage:
        missing = explain_failed_pull(wanted.asked, text)
        now = self._clock.now()
        retry_at = now + self._backoff.failed(uid_of(pod), wanted.asked, missing, now=now)
        about.record(
            Reason.FAILED,
            f'Failed to pull image "{wanted.asked}": {text}',
            measurements=tried,
            next_step="pull again after a back-off",
            next_at=retry_at,
            parent=parent,
        )
        return replace(missing, retry_at=min(retry_at, now + SHOW_BACKOFF))


def describe_pull(image: str, done: PullDone, size: int) -> str:
    """Return upstream's sentence about a pull, with its time alone and with the wait for its turn."""
    alone, waited = _duration(done.took), _duration(done.waited + done.took)
    return f'Successfully pulled image "{image}" in {alone} ({waited} including waiting). Image size: {size} bytes.'


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


def _tried(fitting: FittingLogins) -> Mapping[str, Measurement]:
    return {"logins": len(fitting.logins), "missing pull secrets": ", ".join(fitting.missing)}


def _duration(seconds: float) -> str:
    """Write a duration as Go does, in whole milliseconds."""
    # A hair is added: the difference of two readings of a clock may be one too small.
    return Duration.of(timedelta(milliseconds=int(seconds * 1000 + 1e-6))).wire()
