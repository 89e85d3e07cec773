"""Results of probes, as the parts that act on them see them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

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


class ProbeKey(msgspec.Struct, frozen=True):
    """One probe of one container instance."""

    container: ContainerId
    kind: ProbeKind


ProbeView: TypeAlias = Mapping[ProbeKey, ProbeResult]
