"""What environment variables and volumes of the downward API have in common. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from klet.api.meta import ObjectMeta
from klet.api.quantity import Quantity
from klet.api.validation import formats
from klet.model.pod_resources import CPU

_ONE: Final = Quantity.of(1)
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def format_map(values: Mapping[str, str]) -> str:
    """Format labels or annotations as text: one to a line, sorted, without a last newline."""
    return "\n".join(f"{key}={quoted(values[key])}" for key in sorted(values))


def split_subscript(path: str) -> tuple[str, str] | None:
    """Split `metadata.labels['key']` in two; return None for a path without a key."""
    front, opening, key = path.removesuffix("']").partition("['")
    return (front, key) if path.endswith("']") and opening and front else None


class MapEntry(NamedTuple):
    """One label or annotation, empty if it is not there, and what is wrong with the key."""

    text: str
    problems: tuple[str, ...]


def map_entry(metadata: ObjectMeta, front: str, key: str) -> MapEntry | None:
    """Return what a subscript stands for; None on a path that takes none."""
    match front:
        case "metadata.labels":
            return MapEntry(metadata.labels.get(key, ""), tuple(formats.label_key(key)))
        case "metadata.annotations":
            return MapEntry(metadata.annotations.get(key, ""), tuple(formats.annotation_key(key)))
        case _:
            return None


def in_units(amount: Quantity, divisor: Quantity | None, resource: str) -> str:
    """Return an amount in multiples of a divisor, rounded up."""
    divisor = divisor or _ONE
    if resource == CPU:
        return str(-(-amount.milli_value() // divisor.milli_value()))
    return str(-(-amount.value() // divisor.value()))


def quoted(text: str) -> str:
    """Quote a text as Go does (`%q`)."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
