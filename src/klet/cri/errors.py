"""Errors of calls to the runtime.

CriError               code and message as the runtime gave them, cut; str() is `rpc error: code = … desc = …`
├── Unavailable        the socket does not answer: the runtime is down or restarting
├── CriNotFound        the sandbox, container or image does not exist (any more)
├── CriAlreadyExists   the name or id is taken
├── ResourceExhausted  too many requests or too large an answer
├── Unimplemented      the runtime does not have this call
├── DeadlineExceeded   no answer in time
│   └── ExecTimeout    a command in a container ran out of time
├── InvalidRuntime     the endpoint does not speak CRI v1
└── BadAnswer          the runtime answered, but left out what the protocol requires
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final

from klet.errors import KletError
from klet.model.foreign_text import LONGEST_OUTPUT, shorten
from klet.wire.codes import Code as Code


class PullFailure(StrEnum):
    """Pulls that failed for a reason which the CRI has a word for (upstream's errors of the image service)."""

    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    SIGNATURE_VALIDATION_FAILED = "SignatureValidationFailed"


def read_pull_failure(message: str) -> PullFailure | None:
    """Return which of them an error is. The protocol has no code for it: by contract the word begins the message."""
    return next((failure for failure in PullFailure if message.startswith(failure)), None)


_LOGIN_WANTED: Final = ("401 Unauthorized", "authorization failed")


class CriError(KletError):
    """The runtime refused, failed or could not be reached."""

    def __init__(self, code: Code, message: str) -> None:
        self.code = code
        self.message = shorten(message)
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"rpc error: code = {self.code} desc = {self.message}"


def wants_login(error: CriError) -> bool:
    """Return whether a registry let nobody in without a login. The protocol has no code for it, only words."""
    return any(sign in error.message for sign in _LOGIN_WANTED)


class Unavailable(CriError):
    """The runtime's socket does not answer."""


class CriNotFound(CriError):
    """No such sandbox, container or image."""


class CriAlreadyExists(CriError):
    """The name or id is taken."""


class ResourceExhausted(CriError):
    """Too many requests, or an answer over the size limit."""


class Unimplemented(CriError):
    """The runtime does not have this call."""


class DeadlineExceeded(CriError):
    """No answer in time."""


class ExecTimeout(DeadlineExceeded):
    """A command in a container ran out of time."""

    def __init__(self, command: Sequence[str], limit: timedelta) -> None:
        quoted = shorten(" ".join(command), LONGEST_OUTPUT // 4).replace("\\", "\\\\").replace('"', '\\"')
        super().__init__(
            Code.DEADLINE_EXCEEDED, f'command timed out: "{quoted}" timed out after {_format_seconds(limit)}'
        )

    def __str__(self) -> str:
        return self.message


class InvalidRuntime(CriError):
    """The endpoint does not speak CRI v1."""

    def __init__(self, service: str, endpoint: str, cause: CriError) -> None:
        super().__init__(cause.code, f'validate CRI v1 {service} API for endpoint "{endpoint}": {cause}')

    def __str__(self) -> str:
        return self.message


class BadAnswer(CriError):
    """An answer without what the protocol requires."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.UNKNOWN, message)

    def __str__(self) -> str:
        return self.message


def error_for(code: Code, message: str) -> CriError:
    """Return the error of the class that callers catch."""
    return _CLASSES.get(code, CriError)(code, message)


_CLASSES: dict[Code, type[CriError]] = {
    Code.UNAVAILABLE: Unavailable,
    Code.NOT_FOUND: CriNotFound,
    Code.ALREADY_EXISTS: CriAlreadyExists,
    Code.RESOURCE_EXHAUSTED: ResourceExhausted,
    Code.UNIMPLEMENTED: Unimplemented,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
}


def _format_seconds(duration: timedelta) -> str:
    """Format whole seconds as upstream prints a duration: 5s, 1m0s, 1h0m5s."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
