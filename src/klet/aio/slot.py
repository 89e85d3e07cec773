"""A slot for one value where the newest wins: a slow reader sees the latest, never a backlog."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    """Holds at most one value that has not been taken yet."""

    def __init__(self) -> None:
        self._values: list[T] = []
        self._filled = asyncio.Event()

    def put(self, value: T) -> T | None:
        """Store a value and return the one that it replaced, if that was never taken."""
        replaced = self._values.pop() if self._values else None
        self._values.append(value)
        self._filled.set()
        return replaced

    def peek(self) -> T | None:
        return self._values[0] if self._values else None

    def take(self) -> T | None:
        """Return the value, if there is one, without waiting."""
        if not self._values:
            return None
        self._filled.clear()
        return self._values.pop()

    async def get(self) -> T:
        """Return the value; wait for one if there is none."""
        while not self._values:
            await self._filled.wait()
        self._filled.clear()
        return self._values.pop()
