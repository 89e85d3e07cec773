"""The format of pprof (`profile.proto`, compressed), as far as a profile of CPU time needs it. Pure.

A profile has a dozen fields of three kinds, so they are written here: the runtime of protobuf would need a generated
module of its own, which every agent would load.
"""

import gzip
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

_VARINT: Final = 0
_BYTES: Final = 2
_LEVEL: Final = 6


class ProfiledFunction(Struct, frozen=True):
    """A function, and the line in it that was reached."""

    name: str
    file: str
    first_line: int
    line: int


class ProfiledStack(Struct, frozen=True, kw_only=True):
    """A stack, the innermost place first, each an index of the places; how often it was seen, and its CPU time."""

    places: tuple[int, ...]
    thread: str
    count: int
    nanoseconds: int


class ProfileFacts(Struct, frozen=True, kw_only=True):
    """When and how a profile was recorded, in nanoseconds."""

    started: int
    duration: int
    period: int


def encode_profile(facts: ProfileFacts, places: Sequence[ProfiledFunction], stacks: Iterable[ProfiledStack]) -> bytes:
    """Return the compressed profile."""
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    cpu = _number(1, text("cpu")) + _number(2, text("nanoseconds"))
    parts = [_message(1, _number(1, text("samples")) + _number(2, text("count"))), _message(1, cpu)]
    for stack in stacks:
        label = _number(1, text("thread")) + _number(2, text(stack.thread))
        ids = _packed(1, [place + 1 for place in stack.places])
        parts.append(_message(2, ids + _packed(2, [stack.count, stack.nanoseconds]) + _message(3, label)))
    functions: dict[tuple[str, str, int], int] = {}
    for number, place in enumerate(places, start=1):
        key = (place.name, place.file, place.first_line)
        if key not in functions:
            functions[key] = len(functions) + 1
            fields = _number(1, functions[key]) + _number(2, text(place.name)) + _number(3, text(place.name))
            parts.append(_message(5, fields + _number(4, text(place.file)) + _number(5, place.first_line)))
        line = _number(1, functions[key]) + _number(2, place.line)
        parts.append(_message(4, _number(1, number) + _message(4, line)))
    parts += [
        _number(9, facts.started),
        _number(10, facts.duration),
        _message(11, cpu),
        _number(12, facts.period),
    ]
    parts += [_message(6, value.encode(errors="replace")) for value in texts]
    return gzip.compress(b"".join(parts), compresslevel=_LEVEL, mtime=0)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _message(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _packed(field: int, values: Sequence[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))
