"""Filters the cause records of one pod for a diagnosis. Pure."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from klet.model.causes import Cause, Measurement
from klet.model.reasons import AnyReason


class ReasonKind(StrEnum):
    """How urgent a reason is."""

    TROUBLE = "trouble"
    """Something is wrong now."""
    PROGRESS = "progress"
    """Something is under way and takes its time."""
    PAST = "past"
    """Something went wrong before, or ended the pod."""


class StateReason(Struct, frozen=True, kw_only=True):
    """Why a pod or the node is in its state: one cause with its measurements, since when, and what comes next."""

    word: str
    """The word that Kubernetes has for it, as `CrashLoopBackOff`."""
    message: str
    kind: ReasonKind = ReasonKind.TROUBLE
    container: str = ""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    since: datetime | None = None
    next: str = ""
    next_at: datetime | None = None


class Evidence(Struct, frozen=True):
    """Records, oldest first."""

    causes: tuple[Cause, ...]

    def about(self, container: str) -> "Evidence":
        """Return those of one container, or with an empty name those of the pod itself."""
        return self.where(lambda cause: cause.finding.subject.container == container)

    def where(self, holds: Callable[[Cause], bool]) -> "Evidence":
        return Evidence(tuple(cause for cause in self.causes if holds(cause)))

    def of(self, *decisions: AnyReason) -> "Evidence":
        return self.where(lambda cause: cause.finding.decision in decisions)

    def after(self, cause: Cause | None) -> "Evidence":
        """Return those made later; all of them if `cause` is None."""
        return self if cause is None else self.where(lambda other: other.id > cause.id)

    def before(self, cause: Cause | None) -> "Evidence":
        return self if cause is None else self.where(lambda other: other.id < cause.id)

    @property
    def first(self) -> Cause | None:
        return self.causes[0] if self.causes else None

    @property
    def newest(self) -> Cause | None:
        return self.causes[-1] if self.causes else None

    def newest_of(self, *decisions: AnyReason) -> Cause | None:
        return self.of(*decisions).newest


def plain_error(text: str) -> str:
    """Return an error without the prefixes of the layers that it came through."""
    previous = None
    while previous != text:
        previous = text
        text = _LAYERS.sub("", text, count=1).strip()
    return text.removesuffix(": unknown")


_LAYERS: Final = re.compile(
    r"^(?:rpc error: code = \w+ desc = "
    r"|Error: "
    r"|failed to create containerd task: |failed to create shim task: |failed to start containerd task \"[^\"]*\": "
    r"|OCI runtime (?:create|start) failed: |runc (?:create|start) failed: |unable to start container process: "
    r"|failed to pull and unpack image \"[^\"]*\": |failed to resolve reference \"[^\"]*\": |failed to do request: "
    r"|Back-off pulling image \"[^\"]*\": |ErrImagePull: "
    r"|Failed to create pod sandbox: |failed to setup network for sandbox \"[^\"]*\": "
    r"|MountVolume\.SetUp failed for volume \"[^\"]*\" : |Unable to attach or mount volumes: "
    r"|error killing pod: |failed to destroy network for sandbox \"[^\"]*\": "
    r")"
)
