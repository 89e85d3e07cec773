"""Which paths the API has at all, before authentication: upstream's multiplexer. Pure.

The table of endpoints is indexed once, so that a path costs the same however many endpoints there are.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from klet.server.endpoints import AREAS, Area, Door, Standing, WithoutDebugging

OTHER: Final = "other"


class Inside(Struct, frozen=True):
    """A path of the API, even if only for a 404: the client must be authorized."""


class Outside(Struct, frozen=True):
    """No path of the API."""


class Moved(Struct, frozen=True):
    """The same with a slash at its end."""

    to: str


Place: TypeAlias = Inside | Outside | Moved


class PathLabels(Struct, frozen=True):
    """The label of a path in metrics: a word of the table, never text of a client."""

    path: str
    is_long_running: bool = False


class Paths:
    """The paths of some areas."""

    def __init__(self, areas: Iterable[Area]) -> None:
        self._exact: dict[str, PathLabels] = {}
        self._trees: dict[str, PathLabels] = {}
        self._moved: dict[str, Moved] = {}
        for area in areas:
            self._add(area)

    def find(self, path: str) -> Place:
        if (moved := self._moved.get(path)) is not None:
            return moved
        return Inside() if self._labels(path) is not None else Outside()

    def labels(self, path: str) -> PathLabels:
        return self._labels(path) or PathLabels(OTHER)

    def _add(self, area: Area) -> None:
        if area.is_tree:
            self._trees["/".join(area.segments)] = PathLabels(area.label, area.is_long_running)
            if area.root.endswith("/"):
                self._moved[area.root.removesuffix("/")] = Moved(area.root)
            return
        for endpoint in area.endpoints:
            if endpoint.standing is not Standing.GATED:
                labels = PathLabels(endpoint.label or area.label, area.is_long_running)
                self._exact.update(dict.fromkeys(endpoint.paths, labels))

    def _labels(self, path: str) -> PathLabels | None:
        if (found := self._exact.get(path)) is not None or not path.startswith("/"):
            return found
        first, _, below = path[1:].partition("/")
        return self._trees.get(first) or self._trees.get(f"{first}/{below.partition('/')[0]}")


def find_place(path: str, *, has_debugging: bool) -> Place:
    """`has_debugging` is `enableDebuggingHandlers`."""
    return (_ALL if has_debugging else _WITHOUT_DEBUGGING).find(path)


def find_health(path: str) -> Place:
    """Return the paths of the health listener."""
    return Inside() if path in _HEALTH else Outside()


def label_path(path: str) -> PathLabels:
    """Return the labels of a request for metrics."""
    return _ALL.labels(path)


_ALL: Final = Paths(AREAS)
_WITHOUT_DEBUGGING: Final = Paths(area for area in AREAS if area.without_debugging is not WithoutDebugging.GONE)
_HEALTH: Final = frozenset(
    path
    for area in AREAS
    for endpoint in area.endpoints
    if Door.HEALTH in area.doors_of(endpoint)
    for path in endpoint.paths
)
