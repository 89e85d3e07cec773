"""What a request means to the authorizer: a verb on a subresource of this node. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_VERBS: Final[Mapping[str, str]] = {
    "POST": "create",
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_OWN: Final[Mapping[str, str]] = {
    "stats": "stats",
    "metrics": "metrics",
    "logs": "log",
    "checkpoint": "checkpoint",
    "statusz": "statusz",
    "flagz": "configz",
}
_FINE: Final[Mapping[str, str]] = {"pods": "pods", "runningpods": "pods", "healthz": "healthz", "configz": "configz"}
_PROXY: Final = "proxy"


@dataclass(frozen=True, slots=True)
class Attributes:
    """A verb and the subresources one of which must be allowed, in the order they are asked for."""

    verb: str
    subresources: tuple[str, ...]


def read_attributes(method: str, path: str, *, is_fine_grained: bool) -> Attributes:
    """`is_fine_grained` is the gate KubeletFineGrainedAuthz."""
    verb = _VERBS.get(method, "")
    first = path.removeprefix("/").partition("/")[0]
    if first in _OWN:
        return Attributes(verb, (_OWN[first],))
    if is_fine_grained and first in _FINE:
        return Attributes(verb, (_FINE[first], _PROXY))
    return Attributes(verb, (_PROXY,))
