"""The file of a resource manager in memory, for tests and simulations; it outlives the agent."""

import asyncio
from typing import Generic, TypeVar

from klet.checkpoint.errors import CheckpointError
from klet.checkpoint.file import Absent, CheckpointFormat, Found

T = TypeVar("T")


class StateBytes(Generic[T]):
    """A state file as bytes in memory."""

    def __init__(self, *, form: CheckpointFormat[T]) -> None:
        self.data: bytes | None = None
        self.saves = 0
        self.refuses = ""
        """Why nothing can be written at the moment."""
        self._form = form

    async def read_or_refuse(self) -> Found[T] | Absent:
        return Absent() if self.data is None else Found(self._form.decode(self.data))

    async def save(self, value: T) -> None:
        if self.refuses:
            raise CheckpointError(self.refuses)
        self.data = self._form.encode(value)
        self.saves += 1


class DyingStateBytes(StateBytes[T]):
    """A state file at one of whose writes the agent is killed: it never returns from there."""

    def __init__(self, *, form: CheckpointFormat[T], at: int, after: bool) -> None:
        """Let the agent die at the write of that number, before or after the file has changed."""
        super().__init__(form=form)
        self.died = asyncio.Event()
        self._at, self._after = at, after
        self._begun = 0

    async def save(self, value: T) -> None:
        self._begun += 1
        dies = self._begun == self._at
        if not dies or self._after:
            await super().save(value)
        if dies:
            self.died.set()
            await asyncio.get_running_loop().create_future()
