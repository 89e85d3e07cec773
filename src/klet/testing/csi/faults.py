"""What goes wrong in the test driver, and when. Pure, but for what is left of a plan."""

import asyncio
from enum import StrEnum

from msgspec import Struct

from klet.wire.codes import Code


class Moment(StrEnum):
    """When a fault happens in a call."""

    BEFORE = "before"
    """Nothing has been done."""
    PARTIAL = "partial"
    """The directory is there, but nothing is mounted on it."""
    AFTER = "after"
    """Everything has been done, but the caller does not learn that."""


class Mishap(StrEnum):
    """What happens, other than an error with a code."""

    HANG = "hang"
    """No answer until the fault is released; then the call goes on, late."""
    DIE = "die"
    """The driver's process ends; one within the test's process closes all connections."""
    LIE = "lie"
    """A good answer, and nothing done."""


class DriverFault(Struct, kw_only=True):
    """One fault of one kind of call, for so many calls."""

    rpc: str
    does: Code | Mishap
    at: Moment = Moment.BEFORE
    message: str = "injected"
    times: int = 1


class FaultPlan:
    """The faults to come, in their order. `reached` is set when one has happened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._faults: list[DriverFault] = []
        self._released = asyncio.Event()

    def add(self, fault: DriverFault) -> None:
        self._faults.append(fault)

    def clear(self) -> None:
        """Drop what has not happened yet, and let go on what hangs."""
        self._faults.clear()
        self.release()

    def take(self, rpc: str, at: Moment) -> DriverFault | None:
        """Return the fault of a call at this moment, and count it."""
        for fault in self._faults:
            if fault.rpc == rpc and fault.at is at:
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    async def hang(self) -> None:
        """Wait for the release."""
        self._released.clear()
        self.reached.set()
        await self._released.wait()

    def release(self) -> None:
        self._released.set()
