"""Merges calls that ask for the same at the same time: one does the work, the others wait for its result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K")
T = TypeVar("T")


class _Ended(Struct, Generic[T], frozen=True):
    value: T


class _Failed(Struct, frozen=True):
    error: Exception


class SingleFlight(Generic[K, T]):
    """Work by key. It is done in the task of the first caller; if that is cancelled, the next one begins again."""

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Future[_Ended[T] | _Failed | None]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the work returns, or raise what it raises."""
        while (flight := self._flights.get(key)) is not None:
            # Who waits may be cancelled without an effect on the others.
            match await asyncio.shield(flight):
                case _Ended(value):
                    result: T = value
                    return result
                case _Failed(error):
                    raise error
                case None:
                    continue
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        outcome: _Ended[T] | _Failed | None = None
        try:
            outcome = _Ended(await work())
        except Exception as error:
            outcome = _Failed(error)
            raise
        else:
            return outcome.value
        finally:
            del self._flights[key]
            flight.set_result(outcome)
