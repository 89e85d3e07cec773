"""The file of a resource manager in memory, for tests and simulations; it outlives the agent."""

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
