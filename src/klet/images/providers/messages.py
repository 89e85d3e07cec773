"""What a credential provider is sent, and how its answer is read (CredentialProviderRequest and -Response). Pure.

No error quotes an answer: it holds passwords.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal, TypeVar

import msgspec

from klet.api.times import Duration, TimeError
from klet.errors import KletError
from klet.images.docker_config import RegistryLogin
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.hidden_fields import HidesFields

REQUEST_KIND: Final = "CredentialProviderRequest"
T = TypeVar("T", bound=msgspec.Struct)
_UNREADABLE: Final = "error decoding credential provider plugin response from stdout"


class BadResponse(KletError):
    """An answer that does not keep to the protocol."""


class CacheKeyType(StrEnum):
    """For which images an answer is good."""

    IMAGE = "Image"
    REGISTRY = "Registry"
    GLOBAL = "Global"


class ProviderRequest(HidesFields, frozen=True, kw_only=True):
    """What a provider is asked."""

    HIDDEN = frozenset({"token"})

    image: str
    """The full name of a repository, without tag and digest."""
    token: str = ""
    annotations: Mapping[str, str] = {}
    """Of the service account."""


class ProviderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The logins of an answer by the places that they are for, and how long they may be kept."""

    cache_key_type: CacheKeyType
    cache_duration: timedelta | None
    """None: as the configuration of the provider says."""
    logins: Mapping[str, RegistryLogin]


def encode_request(request: ProviderRequest, *, api_version: str) -> bytes:
    """Return the line that a provider reads."""
    fields: dict[str, object] = {"kind": REQUEST_KIND, "apiVersion": api_version, "image": request.image}
    if request.token:
        fields["serviceAccountToken"] = request.token
    if request.annotations:
        fields["serviceAccountAnnotations"] = dict(sorted(request.annotations.items()))
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode_response(output: bytes, *, api_version: str) -> ProviderAnswer:
    """Read an answer strictly; raises BadResponse."""
    actual = _read(output, _Version).api_version or ""
    if actual != api_version:
        raise BadResponse(
            f"apiVersion from credential plugin response did not match expected apiVersion:{api_version}, "
            f"actual apiVersion:{shorten(actual, LONGEST_WORD)}"
        )
    _refuse_repeated(output)
    response = _read(output, _Response)
    try:
        kind = CacheKeyType(response.cache_key_type or "")
    except ValueError:
        shown = shorten(response.cache_key_type or "", LONGEST_WORD)
        raise BadResponse(f"credential provider plugin did not return a valid cacheKeyType: {shown}") from None
    return ProviderAnswer(
        cache_key_type=kind,
        cache_duration=_read_duration(response.cache_duration),
        logins={
            place: RegistryLogin(login.username or "", login.password or "")
            for place, login in ((place, login or _Login()) for place, login in (response.auth or {}).items())
        },
    )


class _Version(msgspec.Struct, frozen=True):
    api_version: str | None = msgspec.field(name="apiVersion", default=None)


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    username: str | None = None
    password: str | None = None


class _Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    kind: Literal["CredentialProviderResponse"]
    api_version: str
    cache_key_type: str | None = None
    cache_duration: str | None = None
    auth: dict[str, _Login | None] | None = None


def _read(output: bytes, into: type[T]) -> T:
    try:
        return msgspec.json.decode(output, type=into)
    except msgspec.ValidationError:
        raise BadResponse(f"{_UNREADABLE}: a field is unknown, missing or of the wrong type") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadResponse(f"{_UNREADABLE}: it is not JSON") from None


def _refuse_repeated(output: bytes) -> None:
    try:
        json.loads(output, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise BadResponse(f"{_UNREADABLE}: it is not JSON") from None


def _without_repetition(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise BadResponse(f"{_UNREADABLE}: a field is there twice")


def _read_duration(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return Duration.parse(text)
    except TimeError:
        raise BadResponse(f"{_UNREADABLE}: cacheDuration is no duration such as 5m") from None
