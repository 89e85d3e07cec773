"""Results of probes, as the parts that act on them see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from klet.model.runtime import ContainerId


class ProbeKind(StrEnum):
    """Which of a container's probes."""

    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"


class ProbeResult(StrEnum):
    """What a probe last concluded."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProbeKey:
    """One probe of one container instance."""

    container: ContainerId
    kind: ProbeKind


ProbeView: TypeAlias = Mapping[ProbeKey, ProbeResult]
