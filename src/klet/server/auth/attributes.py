"""What a request means to the authorizer: a verb on a subresource of this node. Pure."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.server.endpoint_types import PROXY, Right
from klet.server.endpoints import ENDPOINT_GROUPS

_VERBS: Final[Mapping[str, str]] = {
    "POST": "create",
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class Attributes(Struct, frozen=True):
    """A verb and the subresources one of which must be allowed, in the order they are asked for."""

    verb: str
    subresources: tuple[str, ...]


def read_attributes(method: str, path: str, *, is_fine_grained: bool, streams_by_method: bool) -> Attributes:
    """Read the attributes. `is_fine_grained`: gate KubeletFineGrainedAuthz; `streams_by_method`: upstream's rule."""
    verb = _VERBS.get(method, "")
    right = _RIGHTS.get(path.removeprefix("/").partition("/")[0], PROXY)
    if right.is_create and not streams_by_method:
        verb = "create"
    if not right.or_proxy:
        return Attributes(verb, (right.subresource,))
    return Attributes(verb, (right.subresource, PROXY.subresource) if is_fine_grained else (PROXY.subresource,))


_RIGHTS: Final[Mapping[str, Right]] = {group.segments[0]: group.right for group in ENDPOINT_GROUPS}
