"""Reads the content of kept files; what does not fit is damage."""

from typing import TypeVar

import msgspec

from klet.api.codec import DecodeError, decode
from klet.checkpoint import CheckpointDamaged

T = TypeVar("T", bound=msgspec.Struct)


def read_payload(kind: type[T], payload: bytes) -> T:
    """Return klet's own part of a file."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointDamaged(f"field payload: {error}") from error


def read_object(struct: type[T], data: bytes) -> T:
    """Return an object of the API, as it came."""
    try:
        return decode(struct, data)
    except DecodeError as error:
        raise CheckpointDamaged(f"field payload: {error}") from error
