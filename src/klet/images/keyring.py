"""Which logins fit an image: those of the registries and paths that its name matches, the most specific first. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from klet.images.sources import SourcedLogin

T = TypeVar("T")

DEFAULT_REGISTRY: Final = "index.docker.io"
_DEFAULT_NAMES: Final = frozenset({"docker.io", DEFAULT_REGISTRY})
_SCHEMES: Final = ("https://", "http://")
_VERSIONS: Final = ("/v1/", "/v2/")
_PORT: Final = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")


class FittingLogins(Struct, frozen=True):
    """The logins to try for one image."""

    logins: tuple[SourcedLogin, ...] = ()
    """To be tried in this order."""
    missing: tuple[str, ...] = ()
    """The pull secrets that cannot be read: one of them might fit."""


class RegistryLocation(NamedTuple):
    """A registry, or a part of one."""

    host: tuple[str, ...]
    port: str
    path: str


class Keyring(Generic[T]):
    """Logins by registry. Those of the same registry keep the order in which they were given."""

    def __init__(self, documents: Iterable[Mapping[str, T]]) -> None:
        logins: dict[str, list[T]] = {}
        for document in documents:
            for location, login in document.items():
                if (key := key_of(location)) is not None:
                    logins.setdefault(key, []).append(login)
        # Longer names sort behind their beginnings, so that in reverse the more specific comes first.
        self._logins = {key: tuple(logins[key]) for key in sorted(logins, reverse=True)}

    def find(self, repository: str) -> Sequence[T]:
        """Return the logins for a repository, to be tried in this order."""
        found = [login for key, logins in self._logins.items() if matches(key, repository) for login in logins]
        if not found and is_on_default_registry(repository):
            return self._logins.get(DEFAULT_REGISTRY, ())
        return found


def key_of(location: str) -> str | None:
    """Return what a registry is matched by: its host, and a path if there is one. None if it is no address."""
    try:
        parts = urlsplit(location if location.startswith(_SCHEMES) else f"https://{location}")
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    if not _PORT.fullmatch(host):
        return None
    path = unquote(parts.path)
    if path.startswith(_VERSIONS):
        path = path[3:]
    return host if path in {"", "/"} else f"{host}{path}"


def matches(key: str, repository: str) -> bool:
    """Return whether a repository is in a location. A `*` stands for a part of the host, never for several."""
    location, target = _parse_location(key), _parse_location(repository)
    return (
        location.port == target.port
        and len(location.host) == len(target.host)
        and target.path.startswith(location.path)
        and all(
            fnmatchcase(part, glob.replace("[^", "[!")) for glob, part in zip(location.host, target.host, strict=True)
        )
    )


def is_on_default_registry(repository: str) -> bool:
    first, slash, _ = repository.partition("/")
    if not first:
        return False
    return not slash or first in _DEFAULT_NAMES or not any(sign in first for sign in ".:")


def _parse_location(text: str) -> RegistryLocation:
    host, slash, path = text.partition("/")
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]") or (":" in name and not name.startswith("[")):
        name, port = host, ""
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]  # in the brackets of an IPv6 address, a glob would see a choice of characters
    return RegistryLocation(tuple(name.split(".")), port, f"{slash}{path}")
