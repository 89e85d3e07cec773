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
_REACHING_IN: Final = frozenset({"exec", "attach", "run", "portForward"})
"""What lets a client act in a pod. A WebSocket begins with GET, so the method says nothing about it."""
_PROXY: Final = "proxy"


@dataclass(frozen=True, slots=True)
class Attributes:
    """A verb and the subresources one of which must be allowed, in the order they are asked for."""

    verb: str
    subresources: tuple[str, ...]


def read_attributes(method: str, path: str, *, is_fine_grained: bool, streams_by_method: bool) -> Attributes:
    """`is_fine_grained` is the gate KubeletFineGrainedAuthz; `streams_by_method` is upstream's rule for streams."""
    verb = _VERBS.get(method, "")
    first = path.removeprefix("/").partition("/")[0]
    if first in _REACHING_IN and not streams_by_method:
        return Attributes("create", (_PROXY,))
    if first in _OWN:
        return Attributes(verb, (_OWN[first],))
    if is_fine_grained and first in _FINE:
        return Attributes(verb, (_FINE[first], _PROXY))
    return Attributes(verb, (_PROXY,))
