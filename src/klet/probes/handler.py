"""What a probe handler is given, and what it returns."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import Struct

from klet.api.container import Container
from klet.api.handlers import Probe
from klet.api.pod import Pod
from klet.model.foreign_text import LONGEST_OUTPUT
from klet.model.runtime import ContainerId

MAX_OUTPUT = LONGEST_OUTPUT
"""Bytes of a command's or a server's answer that are kept."""


class ProbeAnswer(StrEnum):
    """The result of one run of a probe (upstream's probe.Result)."""

    SUCCESS = "success"
    WARNING = "warning"
    """Counts as success, but is recorded."""
    FAILURE = "failure"
    UNKNOWN = "unknown"


class ProbeOutcome(msgspec.Struct, frozen=True):
    """The answer of one run, with the output of the container."""

    answer: ProbeAnswer
    output: str = ""
    error: str = ""
    """Not empty if the probe could not be carried out: it is retried, and the answer does not count."""


Question: TypeAlias = Callable[[], Awaitable[ProbeOutcome]]
"""Runs a probe once; can be called any number of times."""


class ProbeTarget(Struct, frozen=True, kw_only=True):
    """One container instance, and how to probe it."""

    pod: Pod
    container: Container
    id: ContainerId
    probe: Probe
    pod_ip: str
    timeout: timedelta


def answer_always(outcome: ProbeOutcome) -> Question:
    """Return a probe with a fixed outcome, for one that cannot be carried out."""

    async def answer() -> ProbeOutcome:
        return outcome

    return answer
