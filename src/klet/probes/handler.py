"""What a probe handler is given, and what it answers."""

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


class Answer(StrEnum):
    """What one run of a probe showed."""

    SUCCESS = "success"
    WARNING = "warning"
    """As good as success, but worth telling."""
    FAILURE = "failure"
    UNKNOWN = "unknown"


class Outcome(msgspec.Struct, frozen=True):
    """The answer of one run, with what the container said."""

    answer: Answer
    output: str = ""
    error: str = ""
    """Not empty if the probe could not be carried out: it is tried again, and the answer counts for nothing."""


Question: TypeAlias = Callable[[], Awaitable[Outcome]]
"""Asks a container once; can be used any number of times."""


class ProbeTarget(Struct, frozen=True, kw_only=True):
    """One container instance, and how to ask it."""

    pod: Pod
    container: Container
    id: ContainerId
    probe: Probe
    pod_ip: str
    timeout: timedelta


def answer_always(outcome: Outcome) -> Question:
    """For a question that cannot even be put."""

    async def answer() -> Outcome:
        return outcome

    return answer
