"""What a fuzz target is: inputs to begin with, how to change them, what to run, and what it may cost."""

import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Final, TypeAlias

from msgspec import Struct

Run: TypeAlias = Callable[[bytes], Hashable]
"""Runs the code on one input. Returns what came of it in a word or two: a word never seen keeps the input."""
Mutate: TypeAlias = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""Makes a new input of one input, with others at hand to take pieces from."""


_LARGE: Final = 1024
_MOST_SIZES: Final = 97
_MIDDLE_SIZE: Final = 61


class Flaw(Exception):
    """The code did something it must not do; the text says what, and is the same for the same fault."""


class Recipe(Struct, frozen=True):
    """An input that can be made as large as wanted: a piece is repeated, and what closes it as often behind it."""

    before: bytes
    piece: bytes
    middle: bytes = b""
    closing: bytes = b""
    after: bytes = b""

    def make(self, size: int) -> bytes:
        fixed = len(self.before) + len(self.middle) + len(self.after)
        count = max(1, (size - fixed) // (len(self.piece) + len(self.closing)))
        return self.before + self.piece * count + self.middle + self.closing * count + self.after


Amplify: TypeAlias = Callable[[Random, bytes], Recipe]


def piece_size(data: bytes) -> int:
    """Return the size of the pieces of an input that arrives bit by bit.

    Each input has a size of its own, the large ones of a recipe all the same: their costs are compared.
    """
    return zlib.crc32(data) % _MOST_SIZES + 1 if len(data) < _LARGE else _MIDDLE_SIZE


class Limits(Struct, frozen=True, kw_only=True):
    """What one input may cost."""

    input_size: int = 8 << 10
    """Bytes of an input that mutation makes."""
    largest: int = 64 << 10
    """Bytes of the largest input whose cost is measured."""
    text: int = 16 << 10
    """Characters of an error."""
    memory: int = 8 << 20
    """Bytes, besides those for each byte of the input."""
    memory_per_byte: int = 256
    seconds: float = 5.0
    """Processor time."""


class FuzzTarget(Struct, frozen=True, kw_only=True):
    """One kind of bytes from outside, and the code that reads it."""

    name: str
    summary: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    amplify: Amplify
    opened: Callable[[], AbstractContextManager[Run]]
    """Provides what the run needs: a loop, a server, a directory."""
    limits: Limits = Limits()
