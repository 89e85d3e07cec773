"""A call to the fake runtime: begun at once, ended at once or when its time has come.

A handler of a call that takes time is a generator: it yields what it waits for and returns the answer, so that it reads
from top to bottom and nothing is ever awaited. The others just return the answer.
"""

from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec
from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from klet.cri.errors import Code
from klet.errors import KletError


class RpcFailure(KletError):
    """What a handler raises: the status that the caller gets."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class CallSignal:
    """Something that calls wait for; it may fire many times."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def fire(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


class CallWait(NamedTuple):
    """Go on at that time or when the signal fires, whichever comes first. Neither: wait until the call is given up."""

    until: datetime | None = None
    on: CallSignal | None = None


Steps: TypeAlias = Generator[CallWait, None, Message]
# Each handler takes the request of its own call, which the table cannot say.
HandlerTable: TypeAlias = Mapping[str, Callable[[Any], Message | Steps]]


def _ignore() -> None:
    """Do nothing."""


class Call:
    """One call on its way."""

    __slots__ = ("_listeners", "arming", "failure", "is_slow", "request", "response", "rpc", "steps", "when_slow")

    def __init__(self, rpc: str, request: Message) -> None:
        self.rpc = rpc
        self.request = request
        self.steps: Steps | None = None
        # It waits for something, beyond the time that every call takes.
        self.is_slow = False
        self.when_slow: Callable[[], None] = _ignore
        self.response: Message | None = None
        self.failure: RpcFailure | None = None
        self.arming = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        return self.response is not None or self.failure is not None

    def when_done(self, listener: Callable[[], None]) -> None:
        if self.is_done:
            listener()
        else:
            self._listeners.append(listener)

    def finish(self, response: Message | None, failure: RpcFailure | None) -> None:
        self.response, self.failure = response, failure
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def result(self) -> Message:
        """Return the answer of a call that is done."""
        if self.failure is not None:
            raise self.failure
        if self.response is None:
            message = f"{self.rpc} has not ended yet"
            raise RuntimeError(message)
        return self.response


class CallRecord(msgspec.Struct, frozen=True):
    """A call that was begun, for tests to look at."""

    at: datetime
    rpc: str
    request: Message

    def __str__(self) -> str:
        return f"{self.at.isoformat()} {self.rpc} {MessageToString(self.request, as_one_line=True)}"


class AnswerRecord(msgspec.Struct, frozen=True):
    """A call that has ended; `code` is OK or that of the error."""

    at: datetime
    rpc: str
    code: Code

    def __str__(self) -> str:
        return f"{self.at.isoformat()} {self.rpc} answered {self.code}"
