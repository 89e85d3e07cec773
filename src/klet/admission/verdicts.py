"""What admission says of a pod: take it in, refuse it, let it wait, or stop others for it first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from klet.api.pod import Pod, PodStatus
from klet.model.causes import Measurement
from klet.model.reasons import Reason


class Admit(Struct, frozen=True):
    """The node takes the pod in; what it needs is set aside for it."""


class Reject(Struct, frozen=True):
    """The node refuses the pod: it fails before it has begun."""

    reason: Reason
    message: str
    """Upstream's words, which users see everywhere."""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    """What was found, for the journal alone; `why` says it in a few words."""


class Wait(Struct, frozen=True):
    """Nothing can be said yet: something that must answer first is not there."""

    message: str


class Preempt(Struct, frozen=True):
    """There is room for the pod once others have stopped. It is asked about again then."""

    victims: tuple[Pod, ...]
    message: str
    status_change: Callable[[PodStatus], PodStatus] | None = None
    """What the status of the victims says."""


Verdict: TypeAlias = Admit | Reject | Wait | Preempt


class AdmitHandler(Protocol):
    """One voice in the admission of pods. It may set something aside for the pod, and wait for somebody's answer."""

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict: ...
