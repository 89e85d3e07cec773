"""Go's debug print of a value, over which the Go kubelet computes the checksums of its files. Pure.

A struct field prints as `Name:(type)value`; keys and elements print without type; a pointer among them prints `<*>`.
"""

from dataclasses import dataclass
from typing import TypeAlias

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class DumpScalar:
    """A string or integer type."""

    name: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """A byte slice, which prints as numbers."""

    name: str = "[]uint8"


@dataclass(frozen=True, slots=True)
class Slice:
    name: str
    element: "GoType"


@dataclass(frozen=True, slots=True)
class Map:
    name: str
    value: "GoType"


@dataclass(frozen=True, slots=True)
class DumpField:
    """A field of a Go struct and the attribute that holds it here."""

    name: str
    attribute: str
    type: "GoType"


@dataclass(frozen=True, slots=True)
class Struct:
    name: str
    fields: tuple[DumpField, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    target: Struct

    @property
    def name(self) -> str:
        return f"*{self.target.name}"


GoType: TypeAlias = DumpScalar | Bytes | Slice | Map | Struct | Pointer

STRING = DumpScalar("string")
INT = DumpScalar("int")
UINT64 = DumpScalar("uint64")


def checksum(value: object, go_type: GoType) -> int:
    """Return the number in a file's checksum field."""
    return fnv1a(dump(value, go_type).encode())


def dump(value: object, go_type: GoType) -> str:
    return f"({go_type.name}){_print(value, go_type)}"


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash with 32 bits."""
    result = _OFFSET
    for byte in data:
        result = (result ^ byte) * _PRIME & _WORD
    return result


def _print(value: object, go_type: GoType) -> str:
    if value is None:
        return "<nil>"
    match go_type, value:
        case DumpScalar(), _:
            return str(value)
        case Bytes(), bytes():
            return f"[{' '.join(str(byte) for byte in value)}]"
        case Slice(element=element), list() | tuple():
            return f"[{' '.join(_element(each, element) for each in value)}]"
        case Map(value=element), dict():
            items = sorted(value.items(), key=_key_order)
            return f"map[{' '.join(f'{key}:{_element(each, element)}' for key, each in items)}]"
        case Struct(fields=fields), _:
            printed = (f"{field.name}:{dump(getattr(value, field.attribute), field.type)}" for field in fields)
            return f"{{{' '.join(printed)}}}"
        case Pointer(target=target), _:
            return _print(value, target)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be printed as {go_type.name}")


def _element(value: object, go_type: GoType) -> str:
    printed = _print(value, go_type)
    return f"<*>{printed}" if isinstance(go_type, Pointer) and value is not None else printed


def _key_order(item: tuple[object, object]) -> tuple[int, bytes]:
    """Return the sort key: integers by value, strings by their bytes."""
    key = item[0]
    return (key, b"") if isinstance(key, int) else (0, str(key).encode())
