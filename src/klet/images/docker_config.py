"""Registry logins as Docker writes them: `.dockerconfigjson` and the older `.dockercfg`. Pure.

No error and no text of this module holds anything of what is in such a document but its shape.
"""

import base64
import binascii
import re
from collections.abc import Mapping

import msgspec

from klet.errors import KletError
from klet.model.hidden_fields import HidesFields

_LINE_ENDS = str.maketrans("", "", "\r\n")


class BadDockerConfig(KletError):
    """A document that holds no logins that can be read."""


class RegistryLogin(HidesFields, frozen=True):
    """How to log in to a registry."""

    HIDDEN = frozenset({"password"})

    username: str
    password: str
    email: str = ""
    """Registries are not given it; it distinguishes logins, as upstream's."""


class _Entry(msgspec.Struct, frozen=True):
    username: str | None = None
    password: str | None = None
    email: str | None = None
    auth: str | None = None


class _Document(msgspec.Struct, frozen=True):
    auths: dict[str, _Entry | None] | None = None


def parse_docker_config_json(data: bytes) -> Mapping[str, RegistryLogin]:
    """Return the logins of a `config.json`, by the registries that they are for; raises BadDockerConfig."""
    try:
        document = msgspec.json.decode(data, type=_Document | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadDockerConfig(_shape(error)) from None
    return _read_entries(document.auths if document is not None else None)


def parse_dockercfg(data: bytes) -> Mapping[str, RegistryLogin]:
    """Return the logins of a `.dockercfg`, which is the same without anything around it; raises BadDockerConfig."""
    try:
        return _read_entries(msgspec.json.decode(data, type=dict[str, _Entry | None] | None))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadDockerConfig(_shape(error)) from None


def _shape(error: Exception) -> str:
    """Return what is wrong, without the position: that may quote a secret."""
    return str(error).partition(" - at ")[0]


def _read_entries(entries: Mapping[str, _Entry | None] | None) -> Mapping[str, RegistryLogin]:
    return {location: _read_entry(entry or _Entry()) for location, entry in (entries or {}).items()}


def _read_entry(entry: _Entry) -> RegistryLogin:
    email = entry.email or ""
    if not entry.auth:
        return RegistryLogin(entry.username or "", entry.password or "", email)
    username, colon, password = _decode(entry.auth).partition(":")
    if not colon:
        raise BadDockerConfig("unable to parse auth field, must be formatted as base64(username:password)")
    return RegistryLogin(username, password, email)


def _decode(text: str) -> str:
    """Decode base64 with its padding or without any."""
    digits = text.translate(_LINE_ENDS)
    if not text.strip().endswith("="):
        if len(digits) % 4 == 1:
            raise BadDockerConfig("unable to parse auth field, illegal base64 data")
        digits += "=" * (-len(digits) % 4)
    if not re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", digits):
        raise BadDockerConfig("unable to parse auth field, illegal base64 data")
    try:
        return base64.b64decode(digits, validate=True).decode("utf-8", errors="replace")
    except binascii.Error:
        raise BadDockerConfig("unable to parse auth field, illegal base64 data") from None
