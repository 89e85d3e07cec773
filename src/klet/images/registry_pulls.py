"""Has the runtime pull: in turn, within the rate limit, with one login after the other (image puller, throttling)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.api.times import Duration
from klet.cri.errors import Code, CriError
from klet.cri.port import ImageService
from klet.errors import KletError
from klet.images.present_images import WantedImage
from klet.images.pull_queue import PullLine, PullQueue, QueuedPull, describe_wait
from klet.images.sources import LoginSource, SourcedLogin
from klet.kube.throttle import TokenBucket
from klet.model.causes import CauseId, CauseRecorder
from klet.model.error_text import join_errors
from klet.model.foreign_text import shorten
from klet.model.pods import is_critical, uid_of
from klet.model.pull_times import PullTimes
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder, SubjectRecorder
from klet.wire import cri_v1_pb2 as cri

DECIDER: Final = "images.registry_pulls"
TOO_MANY: Final = "pull QPS exceeded"
_UNCERTAIN: Final = frozenset({Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE})
"""The runtime has not said that it pulled nothing: it may go on without us."""


class PullFailed(KletError):
    """Nothing was pulled; the message is for the user."""

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain
        """False if the runtime may have pulled the image all the same."""


class PullDone(Struct, frozen=True):
    """A pull that succeeded."""

    source: LoginSource | None
    """Where the login came from that was accepted; None if none was shown."""
    took: float
    """Seconds, without the wait."""
    waited: float


class RegistryPulls:
    """Pulls images. The pulls of all pods go through here."""

    def __init__(
        self,
        *,
        images: ImageService,
        queue: PullQueue,
        limit: TokenBucket | None,
        times: PullTimes,
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._images = images
        self._queue = queue
        self._limit = limit
        self._times = times
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    async def pull(
        self,
        pod: Pod,
        container: str,
        wanted: WantedImage,
        logins: Sequence[SourcedLogin],
        *,
        parent: CauseId | None,
    ) -> PullDone:
        """Return when the runtime has the image; raises PullFailed."""
        asked = self._clock.monotonic()
        queued = QueuedPull(
            uid=uid_of(pod),
            pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
            image=wanted.asked,
            is_critical=is_critical(pod),
            asked_at=asked,
        )
        about = self._decisions.for_pod(pod, container)
        waits: list[CauseId] = []

        def note_wait(line: PullLine) -> None:
            waits.append(_record_wait(about, wanted.asked, line, now=self._clock.monotonic(), parent=parent))

        try:
            async with self._queue.turn(queued, on_wait=note_wait):
                began = self._clock.monotonic()
                if waits:
                    waited = Duration.of(timedelta(seconds=round(began - asked))).wire()
                    text = f'Pull of image "{wanted.asked}" begins after a wait of {waited}'
                    about.record(Reason.PULL_BEGINS, text, parent=waits[0])
                source = await self._pull(wanted, logins)
                return PullDone(source, took=self._clock.monotonic() - began, waited=began - asked)
        finally:
            # With the wait, as upstream: it is no time that the start of the pod takes.
            self._times.note(queued.uid, began=asked, ended=self._clock.monotonic())

    async def _pull(self, wanted: WantedImage, logins: Sequence[SourcedLogin]) -> LoginSource | None:
        """Pull with each login in turn until one is accepted. As upstream, never without a login if there is one."""
        if self._limit is not None and not self._limit.try_now():
            raise PullFailed(TOO_MANY)
        if not logins:
            try:
                await self._images.pull_image(_request(wanted, None))
            except CriError as error:
                raise PullFailed(_text_of(error), is_certain=error.code not in _UNCERTAIN) from error
            return None
        failures: list[CriError] = []
        for sourced in logins:
            try:
                await self._images.pull_image(_request(wanted, sourced))
            except CriError as error:
                failures.append(error)
            else:
                return sourced.source
        text = shorten(join_errors(map(_text_of, failures)))
        raise PullFailed(text, is_certain=all(error.code not in _UNCERTAIN for error in failures))


def _record_wait(about: SubjectRecorder, image: str, line: PullLine, *, now: float, parent: CauseId | None) -> CauseId:
    return about.record(
        Reason.PULL_WAITS,
        describe_wait(image, line, now=now),
        measurements={
            "running": len(line.running),
            "before": len(line.before),
            "behindImage": line.running[0].image,
            "behindPod": line.running[0].pod,
        },
        next_step="pull when its turn has come",
        parent=parent,
    )


def _request(wanted: WantedImage, sourced: SourcedLogin | None) -> cri.PullImageRequest:
    if sourced is None:
        return cri.PullImageRequest(image=wanted.spec, sandbox_config=wanted.sandbox)
    auth = cri.AuthConfig(username=sourced.login.username, password=sourced.login.password)
    return cri.PullImageRequest(image=wanted.spec, auth=auth, sandbox_config=wanted.sandbox)


def _text_of(error: CriError) -> str:
    return error.message if error.code is Code.UNKNOWN else str(error)
