"""Errors of calls to CSI drivers.

CsiError               is_final: whether the driver certainly did not do what it was asked for
├── CsiCallFailed      code and message as the driver gave them, cut; str() is `rpc error: code = … desc = …`
└── CsiRequestInvalid  a request without what the protocol requires; it was not sent
"""

from typing import Final

from klet.errors import KletError
from klet.model.foreign_text import shorten
from klet.wire.codes import Code

LONGEST_MESSAGE: Final = 4096
"""Bytes that are kept of what a driver says about a failure."""
NON_FINAL: Final = frozenset({
    Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.ABORTED,
})  # fmt: skip
"""The driver may still be at work, or may have done it (upstream: isFinalError)."""


class CsiError(KletError):
    """A call to a CSI driver failed."""

    is_final: bool = False


class CsiCallFailed(CsiError):
    """The driver refused, failed or could not be reached."""

    def __init__(self, code: Code, message: str) -> None:
        self.code = code
        self.message = shorten(message, LONGEST_MESSAGE)
        self.is_final = code not in NON_FINAL
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"rpc error: code = {self.code} desc = {self.message}"


class CsiRequestInvalid(CsiError):
    """A request without what the protocol requires. Upstream takes that for uncertain: it has no gRPC code."""
