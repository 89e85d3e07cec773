"""The file format of one config map, secret or token: plain, or encrypted."""

from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from klet.api.base import json_null
from klet.api.codec import DecodeError, decode, encode
from klet.checkpoint import CheckpointDamaged, Envelope
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.offline.errors import SealBroken

T = TypeVar("T", bound=msgspec.Struct)

VERSION: Final = 1


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


class Sealer(Protocol):
    """Encrypts for an owner, and decrypts what was encrypted for it (`sealing.py`)."""

    def seal(self, data: bytes, *, owner: bytes) -> bytes: ...

    def open(self, sealed: bytes, *, owner: bytes) -> bytes: ...


class Known(Struct, Generic[T], frozen=True):
    """The last answer of the API server: the object, or None if there is none."""

    value: T | None


class _Plain(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    value: msgspec.Raw
    """`null` for an object that does not exist."""


class _Sealed(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    sealed: bytes | None


class PlainFormat(Generic[T]):
    """One object without encryption: everyone who can read the file can read it."""

    def __init__(self, *, kind: str, owner: str, struct: type[T]) -> None:
        self._envelope = Envelope(kind=kind, version=VERSION, payload=msgspec.Raw)
        self._owner = owner
        self._struct = struct

    def encode(self, value: Known[T]) -> bytes:
        raw = json_null() if value.value is None else msgspec.Raw(encode(value.value))
        return self._envelope.encode(msgspec.Raw(msgspec.json.encode(_Plain(owner=self._owner, value=raw))))

    def decode(self, data: bytes) -> Known[T]:
        payload = read_payload(_Plain, self._envelope.decode(data))
        _check_owner(payload.owner, self._owner)
        return Known(None if payload.value == json_null() else read_object(self._struct, bytes(payload.value)))


class SealedFormat(Generic[T]):
    """One object that only this node can read."""

    def __init__(self, *, kind: str, owner: str, struct: type[T], sealer: Sealer) -> None:
        self._envelope = Envelope(kind=kind, version=VERSION, payload=_Sealed)
        self._owner = owner
        self._bound = f"{kind}\n{owner}".encode()
        self._struct = struct
        self._sealer = sealer

    def encode(self, value: Known[T]) -> bytes:
        sealed = None if value.value is None else self._sealer.seal(encode(value.value), owner=self._bound)
        return self._envelope.encode(_Sealed(owner=self._owner, sealed=sealed))

    def decode(self, data: bytes) -> Known[T]:
        payload = self._envelope.decode(data)
        _check_owner(payload.owner, self._owner)
        if payload.sealed is None:
            return Known(None)
        try:
            opened = self._sealer.open(payload.sealed, owner=self._bound)
        except SealBroken as error:
            raise CheckpointDamaged(f"field payload.sealed: {error}") from error
        return Known(read_object(self._struct, opened))


def _check_owner(found: str, expected: str) -> None:
    if found != expected:
        raise CheckpointDamaged(f"field payload.owner is {shorten(found, LONGEST_WORD)!r}, expected {expected!r}")
