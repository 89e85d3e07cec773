"""Reads an answer as the schema has it to the letter: a field more, or a field less, is an error.

What reads answers in production forgives both, so the strict types are derived from the same structs.
"""

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct, defstruct, field
from msgspec.structs import fields

from klet.api.base import ApiObject
from klet.api.codec import decode

T = TypeVar("T", bound=Struct)


def decode_strictly(cls: type[T], data: bytes) -> T:
    """Read one answer. Raises msgspec.ValidationError for unknown and for missing fields, at any depth."""
    msgspec.json.decode(data, type=_strict(cls))
    return decode(cls, data)


@cache
def _strict(cls: type[Struct]) -> type[Struct]:
    """Return the same struct without defaults, closed to other fields."""
    config = [(each.name, _strict_type(each.type), field(name=each.encode_name)) for each in fields(cls)]
    return defstruct(f"Strict{cls.__name__}", config, kw_only=True, forbid_unknown_fields=True)


def _strict_type(kind: object) -> object:
    if isinstance(kind, type) and issubclass(kind, Struct):
        # Kubernetes leaves out what is empty, and has a codec of its own.
        return Mapping[str, object] if issubclass(kind, ApiObject) else _strict(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return Union[tuple(_strict_type(each) for each in inner)]  # noqa: UP007 - built at run time
    if origin is None or not inner:
        return kind
    return origin[tuple(each if each is ... else _strict_type(each) for each in inner)]
