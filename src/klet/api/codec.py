"""JSON and plain data to API structs and back.

What upstream's decoder forgives is forgiven (see `schema.relax`), on a second and slower pass. Errors name the field as
the API does (`spec.containers[0].image`).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from klet.api.quantity import Quantity
from klet.api.schema import follow, relax, shorten_key
from klet.api.times import Duration, MicroTime, Time
from klet.errors import KletError

T = TypeVar("T", bound=msgspec.Struct)

_TOO_DEEP: Final = "invalid JSON: nested too deep"


class DecodeError(KletError):
    """Data that does not fit the type: which field, and what is wrong with it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


def decode(cls: type[T], data: bytes | str) -> T:
    """Read one object from JSON."""
    try:
        read: T = _decoder(cls).decode(data)
        return read
    except msgspec.ValidationError as error:
        strict = error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise DecodeError(_TOO_DEEP) from error
    try:
        # Only now all of it is read: a text may begin like JSON and not be any, such as "[+]ping ok".
        plain = msgspec.json.decode(data)
        return _convert_leniently(cls, plain, strict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise DecodeError(_TOO_DEEP) from error


def convert(cls: type[T], data: object) -> T:
    """Read one object from plain data, such as a parsed YAML document."""
    try:
        return msgspec.convert(data, cls, dec_hook=_from_plain)
    except msgspec.ValidationError as error:
        strict = error
    return _convert_leniently(cls, data, strict)


def encode(obj: object) -> bytes:
    """Write an object, or plain data, as JSON. What cannot be written, as in a strange file name, becomes `?`."""
    try:
        return _ENCODER.encode(obj)
    except UnicodeEncodeError:
        return _ENCODER.encode(_writable(msgspec.to_builtins(obj, enc_hook=_to_plain)))


def to_builtins(obj: object) -> Any:
    """Turn an object into plain data, exactly as it would be read back from JSON."""
    return msgspec.json.decode(encode(obj))


def field_path(path: str) -> str:
    """Turn msgspec's `$.spec.containers[0]` into the API's `spec.containers[0]`."""
    return path.removeprefix("$").removeprefix(".")


@cache
def _decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls, dec_hook=_from_plain)


def _convert_leniently(cls: type[T], data: object, strict: msgspec.ValidationError) -> T:
    """Read once more as generously as upstream does; what then fails is wrong."""
    relaxed = relax(cls, data)
    if relaxed != data:
        try:
            return msgspec.convert(relaxed, cls, dec_hook=_from_plain)
        except msgspec.ValidationError as error:
            strict = error
        data = relaxed
    message, _, path = str(strict).partition(" - at `")
    if path.startswith(_IN_KEYS):
        message, path = f"{message} as a key", path.removeprefix(_IN_KEYS)
    raise DecodeError(message, field=_name_keys(cls, data, path.removesuffix("`"))) from strict


def _name_keys(cls: type[Any], data: object, path: str) -> str:
    """Put the key of the failing entry where msgspec only reports that it is somewhere in a map."""
    before, mark, after = path.partition("[...]")
    here = field_path(before)
    if not mark:
        return here
    entries, kind = follow(cls, data, here)
    for key, value in entries.items():
        try:
            msgspec.convert(value, kind, dec_hook=_from_plain)
        except msgspec.ValidationError:
            return f"{here}[{shorten_key(key)}]{after}"
    return here


def _from_plain(kind: type[Any], value: Any) -> Any:
    read = _READERS.get(kind)
    if read is None:
        raise TypeError(f"no way to read {kind.__name__}")
    return read(value)


def _to_plain(value: Any) -> str:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Time | MicroTime | Duration):
        return value.wire()
    raise TypeError(f"no way to write {type(value).__name__}")


def _writable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_writable(each) for each in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(each) for key, each in value.items()}
    return value


def _read_quantity(value: object) -> Quantity:
    if isinstance(value, str):
        return Quantity.parse(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Quantity.parse(str(value))
    raise ValueError(f"Expected a quantity, got `{type(value).__name__}`")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")  # noqa: TRY004  # msgspec adds the path to a ValueError
    return value


_READERS: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    Quantity: _read_quantity,
    Time: lambda value: Time.of(value) if isinstance(value, datetime) else Time.parse(_text(value)),
    MicroTime: lambda value: MicroTime.of(value) if isinstance(value, datetime) else MicroTime.parse(_text(value)),
    Duration: lambda value: Duration.parse(_text(value)),
}
_IN_KEYS: Final = "key` in `"
_ENCODER: Final = msgspec.json.Encoder(enc_hook=_to_plain)
