"""The format of klet's own state: `{"kind", "version", "checksum", "payload"}` in JSON.

The checksum is SHA-256 over kind, version and the payload's bytes as they stand in the file. Later versions of klet
keep these four fields and this rule, so that an older klet can tell a newer file from a damaged one.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from klet.checkpoint.errors import CheckpointDamaged, CheckpointVersion
from klet.model.foreign_text import LONGEST_WORD, shorten

T = TypeVar("T")


class _Outer(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    version: int
    checksum: str
    payload: msgspec.Raw


class Envelope(Generic[T]):
    """Values of one type, or `msgspec.Raw` as it is. `older` reads the payloads of earlier versions."""

    def __init__(
        self, *, kind: str, version: int, payload: type[T], older: Mapping[int, Callable[[bytes], T]] | None = None
    ) -> None:
        self._kind = kind
        self._version = version
        self._payload = payload
        self._older = dict(older or {})

    def encode(self, value: T) -> bytes:
        payload = _encode_payload(value)
        outer = _Outer(
            kind=self._kind,
            version=self._version,
            checksum=_checksum(self._kind, self._version, payload),
            payload=msgspec.Raw(payload),
        )
        return msgspec.json.encode(outer)

    def decode(self, data: bytes) -> T:
        try:
            outer = msgspec.json.decode(data, type=_Outer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CheckpointDamaged(f"it is not a klet checkpoint: {error}") from error
        payload = bytes(outer.payload)
        if outer.checksum != _checksum(outer.kind, outer.version, payload):
            raise CheckpointDamaged("field checksum does not match kind, version and payload")
        if outer.kind != self._kind:
            raise CheckpointDamaged(f"field kind is {shorten(outer.kind, LONGEST_WORD)!r}, expected {self._kind!r}")
        return self._decode_payload(outer.version, payload)

    def _decode_payload(self, version: int, payload: bytes) -> T:
        try:
            if version == self._version:
                return msgspec.json.decode(payload, type=self._payload)
            if version in self._older:
                return self._older[version](payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CheckpointDamaged(f"field payload of version {version}: {error}") from error
        known = ", ".join(str(each) for each in sorted({*self._older, self._version}))
        raise CheckpointVersion(
            f"field version is {version}, this klet knows {known}; use the klet that wrote it, or move the file away"
        )


def _encode_payload(value: object) -> bytes:
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    return msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic"))


def _checksum(kind: str, version: int, payload: bytes) -> str:
    return hashlib.sha256(f"{kind}\n{version}\n".encode() + payload).hexdigest()
