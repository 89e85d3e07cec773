"""Which resource a URL path means. Pure."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.api.kinds import KINDS, Kind

_BY_PATH: Final[Mapping[tuple[str, str], Kind]] = {(kind.api_version, kind.plural): kind for kind in KINDS}


class Route(Struct, frozen=True):
    """A collection, an object or a part of an object."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find_route(path: str) -> Route | None:
    """Return the route of a path below `/api` or `/apis`; None if there is no such resource."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest]:
            return _find(version, rest)
        case ["apis", group, version, *rest]:
            return _find(f"{group}/{version}", rest)
        case _:
            return None


def is_api_path(path: str) -> bool:
    """Return whether a missing resource there is answered with a Status."""
    return path.startswith(("/api/", "/apis/"))


def _find(api_version: str, parts: list[str]) -> Route | None:
    if len(parts) > 2 and parts[0] == "namespaces" and (kind := _BY_PATH.get((api_version, parts[2]))):
        return _object(kind, parts[1], parts[3:]) if kind.namespaced else None
    if not parts or (kind := _BY_PATH.get((api_version, parts[0]))) is None:
        return None
    if kind.namespaced:
        return Route(kind) if len(parts) == 1 else None
    return _object(kind, "", parts[1:])


def _object(kind: Kind, namespace: str, parts: list[str]) -> Route | None:
    match parts:
        case []:
            return Route(kind, namespace)
        case [name]:
            return Route(kind, namespace, name)
        case [name, subresource]:
            return Route(kind, namespace, name, subresource)
        case _:
            return None
