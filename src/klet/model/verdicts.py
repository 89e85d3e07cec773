"""The verdicts of admission on a pod: admit, reject, wait, or preempt others first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from klet.api.pod import Pod, PodStatus
from klet.model.causes import Measurement
from klet.model.reasons import RejectionReason


class Admit(Struct, frozen=True):
    """The node admits the pod; its resources are reserved."""


class Reject(Struct, frozen=True):
    """The node rejects the pod: it fails without having started."""

    reason: RejectionReason
    message: str
    """Upstream's words, which users see everywhere."""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    """What was found, for the journal alone; `why` is a short text."""


class Wait(Struct, frozen=True):
    """The verdict has to wait for something that is not there yet."""

    message: str


class Preempt(Struct, frozen=True):
    """The pod fits once others have stopped. Its admission is repeated then."""

    victims: tuple[Pod, ...]
    message: str
    status_change: Callable[[PodStatus], PodStatus] | None = None
    """What the status of the victims says."""
    resource: str = ""
    """What there is too little of."""


Verdict: TypeAlias = Admit | Reject | Wait | Preempt


class AdmitHandler(Protocol):
    """An admission handler. It may reserve something for the pod, and wait for an external answer."""

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict: ...
