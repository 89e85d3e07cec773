"""The image of each sandbox, which the CRI has in the details of its status alone.

Each sandbox is asked about once, when a snapshot first shows it. A runtime that does not report it leaves the label
empty, as one does of which upstream's cAdvisor knows nothing.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.cri.errors import CriError, DeadlineExceeded, Unavailable
from klet.model.runtime import SandboxId
from klet.wire import cri_v1_pb2 as pb

logger = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 128
"""So that the first snapshot of a full node does not wait for long."""
PATIENCE: Final = timedelta(seconds=1)
REST: Final = timedelta(minutes=1)
"""How long a runtime is left alone that did not answer."""
LONGEST_ANSWER: Final = 1 << 20
LONGEST_IMAGE: Final = 512
_DETAILS: Final = "info"


class SandboxDetails(Protocol):
    """The part of the runtime that is asked."""

    async def pod_sandbox_status(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse: ...


class _Details(Struct, frozen=True):
    """What containerd says of a sandbox; all else is skipped."""

    image: str = ""


class SandboxImages:
    """Knows the images of the sandboxes that exist."""

    def __init__(self, *, runtime: SandboxDetails, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._known: dict[SandboxId, str] = {}
        self._silent_until = float("-inf")
        """Until when (monotonic clock) a runtime that did not answer is left alone."""

    async def read(self, sandboxes: Sequence[SandboxId]) -> Mapping[SandboxId, str]:
        """Return what is known of these; forget all others."""
        self._known = {id_: image for id_ in sandboxes if (image := self._known.get(id_)) is not None}
        unknown = [id_ for id_ in sandboxes if id_ not in self._known][:MOST_AT_ONCE]
        if unknown and self._clock.monotonic() >= self._silent_until:
            known = len(self._known)
            # A runtime that hangs must not delay those who ask what the node uses.
            await self._clock.wait(self._ask_about(unknown), at_most=PATIENCE)
            if len(self._known) == known:
                self._silent_until = self._clock.monotonic() + REST.total_seconds()
        return self._known

    async def _ask_about(self, sandboxes: Sequence[SandboxId]) -> None:
        for id_ in sandboxes:
            try:
                self._known[id_] = await self._ask(id_)
            except (Unavailable, DeadlineExceeded) as error:
                logger.debug("No image of a sandbox", extra={"error": str(error)})
                break
            except CriError as error:
                logger.debug("No image of a sandbox", extra={"error": str(error)})
                self._known[id_] = ""

    async def _ask(self, id_: SandboxId) -> str:
        answer = await self._runtime.pod_sandbox_status(pb.PodSandboxStatusRequest(pod_sandbox_id=id_, verbose=True))
        return parse_image(answer.info.get(_DETAILS, ""))


def parse_image(details: str) -> str:
    """Return the image that the details of a sandbox name; empty if they name none."""
    if len(details) > LONGEST_ANSWER:
        return ""
    try:
        image = msgspec.json.decode(details, type=_Details).image
    except msgspec.DecodeError:
        return ""
    return image if len(image) <= LONGEST_IMAGE else ""
