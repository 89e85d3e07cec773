"""Lets an attacker move between two calls of the code under attack, in the same process.

Two processes meet in a gap of some microseconds by chance, and on a busy machine hardly ever. Here the gap lasts as
long as the attacker wants. What happens within one call of the system is left to an attacker in another process.
"""

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from klet.testing.races.attacker import Attacker

_CHANCES: Final = (0.02, 0.1, 0.3)
"""How often a call is interrupted: one attempt makes a dozen of them, another hundreds."""


class Interruptions:
    """Moves of an attacker before calls of functions in C, on every thread that is started meanwhile."""

    def __init__(self, *, attacker: Attacker, seed: int) -> None:
        self._moves = attacker.moves()
        self._random = random.Random(seed)
        self._chance = 0.0
        self._moving = threading.Lock()

    def __enter__(self) -> None:
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow interruptions inside the block."""
        self._chance = self._random.choice(_CHANCES)
        try:
            yield
        finally:
            self._chance = 0.0

    def _look(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event != "c_call" or self._random.random() >= self._chance:
            return
        if self._moving.acquire(blocking=False):  # otherwise another thread has it move
            try:
                next(self._moves)
            finally:
                self._moving.release()
