"""Which paths the API has at all, before authentication (upstream: the ServeMux). Pure.

The table of endpoints is indexed once, so that a path costs the same however many endpoints there are.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from klet.server.endpoint_types import EndpointGroup, EndpointSupport, ListenerKind, WithoutDebugging
from klet.server.endpoints import ENDPOINT_GROUPS

OTHER: Final = "other"


class KnownPath(Struct, frozen=True):
    """A path of the API, even if only for a 404: the client must be authorized."""


class UnknownPath(Struct, frozen=True):
    """No path of the API."""


class RedirectedPath(Struct, frozen=True):
    """A path that is redirected to the same with a slash at its end."""

    to: str


PathMatch: TypeAlias = KnownPath | UnknownPath | RedirectedPath


class PathLabels(Struct, frozen=True):
    """The label of a path in metrics: a word of the table, never text of a client."""

    path: str
    is_long_running: bool = False


class Paths:
    """The paths of some groups."""

    def __init__(self, groups: Iterable[EndpointGroup]) -> None:
        self._exact: dict[str, PathLabels] = {}
        self._trees: dict[str, PathLabels] = {}
        self._redirected: dict[str, RedirectedPath] = {}
        for group in groups:
            self._add(group)

    def find(self, path: str) -> PathMatch:
        if (redirected := self._redirected.get(path)) is not None:
            return redirected
        return KnownPath() if self._labels(path) is not None else UnknownPath()

    def labels(self, path: str) -> PathLabels:
        return self._labels(path) or PathLabels(OTHER)

    def _add(self, group: EndpointGroup) -> None:
        if group.is_tree:
            self._trees["/".join(group.segments)] = PathLabels(group.label, group.is_long_running)
            if group.root.endswith("/"):
                self._redirected[group.root.removesuffix("/")] = RedirectedPath(group.root)
            return
        for endpoint in group.endpoints:
            if endpoint.support is not EndpointSupport.GATED:
                labels = PathLabels(endpoint.label or group.label, group.is_long_running)
                self._exact.update(dict.fromkeys(endpoint.paths, labels))

    def _labels(self, path: str) -> PathLabels | None:
        if (found := self._exact.get(path)) is not None or not path.startswith("/"):
            return found
        first, _, below = path[1:].partition("/")
        return self._trees.get(first) or self._trees.get(f"{first}/{below.partition('/')[0]}")


def match_path(path: str, *, has_debugging: bool, gated: frozenset[str] = frozenset()) -> PathMatch:
    """Match a path. `has_debugging` is `enableDebuggingHandlers`, `gated` are paths whose gates are on."""
    if path in gated:
        return KnownPath()
    return (_ALL if has_debugging else _WITHOUT_DEBUGGING).find(path)


def match_health_path(path: str) -> PathMatch:
    """Return the paths of the health listener."""
    return KnownPath() if path in _HEALTH else UnknownPath()


def label_path(path: str) -> PathLabels:
    """Return the labels of a request for metrics."""
    return _ALL.labels(path)


_ALL: Final = Paths(ENDPOINT_GROUPS)
_WITHOUT_DEBUGGING: Final = Paths(
    group for group in ENDPOINT_GROUPS if group.without_debugging is not WithoutDebugging.GONE
)
_HEALTH: Final = frozenset(
    path
    for group in ENDPOINT_GROUPS
    for endpoint in group.endpoints
    if ListenerKind.HEALTH in group.listeners_of(endpoint)
    for path in endpoint.paths
)
