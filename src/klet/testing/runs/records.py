"""What the plugin writes and the test command reads: one JSON line for each event of a run."""

from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

_MOST_BYTES: Final = 64 << 20


class RunOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The session begins."""


class Collected(msgspec.Struct, frozen=True, tag="collected"):
    """So many tests are to run; none may take longer than the limit in one of its phases, 0 for any time."""

    count: int
    limit: float


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    test: str


class EndedTest(msgspec.Struct, frozen=True, tag="ended"):
    """A result that counts; a test has two if it passes and its tear-down fails."""

    test: str
    outcome: RunOutcome
    reason: str = ""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The session is over, and only the exit of the process is left."""

    code: int


Event: TypeAlias = Started | Collected | Begun | EndedTest | Finished

_decoder: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def decode(line: bytes) -> Event:
    """Read one line; raises msgspec.DecodeError."""
    return _decoder.decode(line)


class RecordReader:
    """Reads a record while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Event]:
        """Return what has come since the last time, in whole lines."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        whole, _, _ = data.rpartition(b"\n")
        if not whole:
            return []
        self._offset += len(whole) + 1
        return [decode(line) for line in whole.split(b"\n")]
