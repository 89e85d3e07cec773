"""A document to a frozen struct and back: types, ranges, durations, unknown fields, with the path of each problem."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from klet.api.quantity import Quantity
from klet.api.times import Duration, Time
from klet.config.document import Json, JsonObject
from klet.config.errors import BadField

S = TypeVar("S", bound=msgspec.Struct)

_NAMES: Final[Mapping[object, str]] = {
    bool: "a bool",
    int: "an integer",
    float: "a number",
    str: "a string",
    timedelta: 'a duration such as "1m30s"',
    Quantity: 'a quantity such as "100Mi"',
    Time: 'a time such as "2026-01-02T15:04:05Z"',
}


class Decoded(Struct, Generic[S], frozen=True):
    """A struct and the paths in the document that it has no place for."""

    value: S
    unknown: tuple[str, ...]


def decode(fields: JsonObject, into: type[S], *, path: str = "") -> Decoded[S]:
    """Build a struct from an object; a value of the wrong type or out of its range raises BadField."""
    unknown: list[str] = []
    value = _struct(fields, into, path, unknown)
    return Decoded(value, tuple(unknown))


def encode(value: msgspec.Struct, *, keep_zero: frozenset[str] = frozenset()) -> dict[str, Json]:
    """Write a struct as upstream's JSON encoder does: empty fields are left out, except durations and `keep_zero`."""
    return _encode_struct(value, "", keep_zero)


def json_type(value: object) -> str:
    """Name the JSON type of a value for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list | tuple) else "object"


def _struct(value: object, into: type[S], path: str, unknown: list[str]) -> S:
    if not isinstance(value, Mapping):
        raise BadField(path, f"expected an object, got a {json_type(value)}")
    known = {field.encode_name: field for field in msgspec.structs.fields(into)}
    arguments: dict[str, object] = {}
    for key, inner in value.items():
        where = f"{path}.{key}" if path else key
        field = known.get(key)
        if field is None:
            unknown.append(where)
        elif inner is not None:
            # As in Go's decoder, null leaves the field as it is.
            arguments[field.name] = _value(inner, field.type, where, unknown)
    return into(**arguments)


def _value(value: object, wanted: object, path: str, unknown: list[str]) -> object:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _value(value, inner, path, unknown)
    if origin is Annotated and arguments[0] is timedelta:
        if isinstance(value, int) and not isinstance(value, bool):
            return timedelta(microseconds=value / 1000)
        return _scalar(value, timedelta, path)
    if origin is Annotated:
        return _in_range(_scalar(value, arguments[0], path), arguments[1], path)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise BadField(path, f"expected a list, got a {json_type(value)}")
        return tuple(_value(inner, arguments[0], f"{path}[{index}]", unknown) for index, inner in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise BadField(path, f"expected an object, got a {json_type(value)}")
        return {key: _value(inner, arguments[1], f"{path}.{key}", unknown) for key, inner in value.items()}
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _struct(value, wanted, path, unknown)
    return _scalar(value, wanted, path)


def _scalar(value: object, wanted: object, path: str) -> object:
    if wanted is Any:
        return value
    if wanted is timedelta and isinstance(value, str):
        return _parsed(Duration.parse, value, path)
    if wanted is Time and isinstance(value, str):
        return _parsed(Time.parse, value, path)
    if wanted is Quantity and isinstance(value, str | int | float) and not isinstance(value, bool):
        return _parsed(Quantity.parse, str(value), path)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(wanted, type) and type(value) is wanted:
        return value
    raise BadField(path, f"expected {_NAMES[wanted]}, got a {json_type(value)}")


def _parsed(parse: Callable[[str], object], text: str, path: str) -> object:
    try:
        return parse(text)
    except ValueError as error:
        raise BadField(path, str(error)) from error


def _in_range(value: object, limits: msgspec.Meta, path: str) -> object:
    assert isinstance(value, int)
    low, high = limits.ge, limits.le
    if (low is not None and value < low) or (high is not None and value > high):
        raise BadField(path, f"{value} is outside {low} to {high}")
    return value


def _encode_struct(value: msgspec.Struct, path: str, keep_zero: frozenset[str]) -> dict[str, Json]:
    written: dict[str, Json] = {}
    for field in msgspec.structs.fields(type(value)):
        where = f"{path}.{field.encode_name}" if path else field.encode_name
        inner = getattr(value, field.name)
        if inner is None or (where not in keep_zero and _is_left_out(inner)):
            continue
        written[field.encode_name] = _encode(inner, where, keep_zero)
    return written


def _is_left_out(value: object) -> bool:
    # Go leaves out what is empty, but a struct is never empty, and upstream's durations and quantities are structs.
    return not isinstance(value, msgspec.Struct | timedelta | Quantity) and not value


def _encode(value: object, path: str, keep_zero: frozenset[str]) -> Json:
    if isinstance(value, msgspec.Struct):
        return _encode_struct(value, path, keep_zero)
    if isinstance(value, timedelta):
        return Duration.of(value).wire()
    if isinstance(value, Time):
        return value.wire()
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _encode(inner, f"{path}.{key}", keep_zero) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(inner, f"{path}[{index}]", keep_zero) for index, inner in enumerate(value)]
    assert isinstance(value, bool | int | float | str)
    return value
