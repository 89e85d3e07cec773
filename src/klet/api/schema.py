"""The shape of API structs, read from their annotations: which wire fields there are and what they hold."""

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from klet.api.base import ApiObject, JsonObject

_STEP: Final = re.compile(r"([^.\[\]]+)(?:\.|(?=\[)|$)|\[(\d+)\]\.?")

_LONGEST_KEY: Final = 300


class Scalar(Struct, frozen=True):
    """A value without fields: text, number, boolean, bytes, time, quantity."""

    type: Any


class Opaque(Struct, frozen=True):
    """Data of unknown type that is passed on."""


class ListOf(Struct, frozen=True):
    item: "Shape"


class MapOf(Struct, frozen=True):
    value: "Shape"


class Object(Struct, frozen=True):
    """A struct with named fields."""

    struct: type[ApiObject]

    @property
    def fields(self) -> Mapping[str, "Field"]:
        return fields_of(self.struct)


Shape: TypeAlias = Scalar | Opaque | ListOf | MapOf | Object


class Field(Struct, frozen=True):
    """One field of a struct: its names in Python and on the wire, what it holds, whether None says unset."""

    name: str
    wire: str
    shape: Shape
    nullable: bool


@cache
def fields_of(struct: type[ApiObject]) -> Mapping[str, Field]:
    """Return the fields of a struct by wire name."""
    found = {}
    for info in msgspec.structs.fields(struct):
        bare, nullable = _without_none(info.type)
        found[info.encode_name] = Field(info.name, info.encode_name, _shape(bare), nullable)
    return found


def unknown_fields(struct: type[ApiObject], data: object) -> list[tuple[str, str | None]]:
    """Name the fields in plain data that the struct does not have, each with the known name most like it."""
    return list(_unknown(Object(struct), data, ""))


def relax(struct: type[Any], data: object) -> object:
    """Return plain data as upstream's decoder understands it.

    A null field is absent, a null element empty, base64 may be broken into lines, and a number or boolean that YAML
    read as the key of a map is text. Opaque data stays as it is.
    """
    return _relaxed(_shape(struct), data)


def follow(struct: type[Any], data: object, path: str) -> tuple[Mapping[str, object], Any]:
    """Return the map that lies at a field path, and the type of its values."""
    annotation: Any = struct
    here: Any = data
    for name, index in _STEP.findall(path):
        bare, _ = _without_none(annotation)
        if index:
            annotation, here = get_args(bare)[0], here[int(index)]
        else:
            info = next(info for info in msgspec.structs.fields(bare) if info.encode_name == name)
            annotation, here = info.type, here[name]
    bare, _ = _without_none(annotation)
    return here, get_args(bare)[1]


def shorten_key(key: object) -> str:
    """Return a key as messages show it: keys come from outside, and may have any length."""
    text = str(key)
    return text if len(text) <= _LONGEST_KEY else f"{text[: _LONGEST_KEY - 1]}…"


def _unknown(shape: Shape, data: object, path: str) -> Iterator[tuple[str, str | None]]:
    match shape, data:
        case Object(), dict():
            known = shape.fields
            for key, value in data.items():
                shown = shorten_key(key)
                here = f"{path}.{shown}" if path else shown
                if key in known:
                    yield from _unknown(known[key].shape, value, here)
                else:
                    yield here, _nearest(str(key), known)
        case ListOf(item), list() | tuple():
            for index, element in enumerate(data):
                yield from _unknown(item, element, f"{path}[{index}]")
        case MapOf(value_shape), dict():
            for key, value in data.items():
                yield from _unknown(value_shape, value, f"{path}[{shorten_key(key)}]")
        case _:
            return


def _nearest(key: str, known: Mapping[str, Field]) -> str | None:
    by_lower = {name.lower(): name for name in known}
    if exact := by_lower.get(key.lower()):
        return exact
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def _relaxed(shape: Shape, data: object) -> object:
    match shape, data:
        case Object(), dict():
            known = shape.fields
            return {
                key: _relaxed(known[key].shape, value) if key in known else value
                for key, value in data.items()
                if value is not None
            }
        case ListOf(item), list() | tuple():
            return [_empty(item) if element is None else _relaxed(item, element) for element in data]
        case MapOf(inner), dict():
            return {
                _key(key): _empty(inner) if value is None else _relaxed(inner, value) for key, value in data.items()
            }
        case Scalar(kind), str() if kind is bytes:
            return data.replace("\r", "").replace("\n", "")
        case _:
            return data


def _key(key: object) -> object:
    if isinstance(key, bool):
        return str(key).lower()
    return str(key) if isinstance(key, int | float) else key


def _empty(shape: Shape) -> object:
    match shape:
        case Object():
            return {}
        case ListOf():
            return []
        case Scalar(kind) if kind in (str, bytes):
            return ""
        case _:
            return None


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        members = get_args(annotation)
        rest = tuple(member for member in members if member is not types.NoneType)
        if len(rest) < len(members):
            return Union[rest], True  # noqa: UP007  # a tuple of members cannot be written with `|`
    return annotation, False


def _shape(annotation: Any) -> Shape:
    if annotation == JsonObject or annotation is msgspec.Raw or annotation is Any:
        return Opaque()
    origin = get_origin(annotation)
    if origin is Annotated:
        return Scalar(annotation)
    if origin is tuple:
        return ListOf(_shape(get_args(annotation)[0]))
    if origin is Mapping:
        return MapOf(_shape(get_args(annotation)[1]))
    struct = origin or annotation  # of `ObjectList[Pod]`, what stands before the bracket
    if isinstance(struct, type) and issubclass(struct, ApiObject):
        return Object(annotation)
    return Scalar(annotation)
