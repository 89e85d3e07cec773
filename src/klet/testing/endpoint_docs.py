"""Writes the tables of docs/kubelet-api.md from the table of endpoints. Pure; `scripts/generate-endpoints` runs it."""

import re
from collections.abc import Iterator
from typing import Final

from klet.server.endpoint_types import PROXY, EndpointGroup, EndpointSupport, KubeletEndpoint, ListenerKind, Right
from klet.server.endpoints import ENDPOINT_GROUPS

_PATTERN: Final = re.compile(r":[^{}]*}")
"""What the router demands of a part of a path."""
PATHS: Final = "paths"
MISSING: Final = "missing"
RIGHTS: Final = "rights"


def write_tables(text: str) -> str:
    """Put the tables that the endpoints give between their marks; the rest stays."""
    for name, lines in ((PATHS, _paths()), (MISSING, _missing()), (RIGHTS, _rights())):
        start, end = f"<!-- {name}: written by scripts/generate-endpoints -->", f"<!-- end of {name} -->"
        if (text.count(start), text.count(end)) != (1, 1):
            raise ValueError(f"the marks of {name} do not stand in the text once each")
        before, _, rest = text.partition(start)
        after = rest.partition(end)[2]
        text = "\n".join([f"{before}{start}", *lines, f"{end}{after}"])
    return text


def _paths() -> Iterator[str]:
    yield "| path | methods | on | without debugging | |"
    yield "| --- | --- | --- | --- | --- |"
    for group, endpoint in _endpoints():
        if endpoint.support is not EndpointSupport.NOT_YET:
            cells = (
                _path_cell(endpoint),
                ", ".join(endpoint.methods) or "any",
                _listeners_cell(group.listeners_of(endpoint)),
                group.without_debugging,
                endpoint.about,
            )
            yield f"| {' | '.join(cells)} |"


def _missing() -> Iterator[str]:
    yield "| path | methods | |"
    yield "| --- | --- | --- |"
    for _, endpoint in _endpoints():
        if endpoint.support is EndpointSupport.NOT_YET:
            cells = (_path_cell(endpoint), ", ".join(endpoint.methods) or "any", endpoint.about)
            yield f"| {' | '.join(cells)} |"


def _rights() -> Iterator[str]:
    yield "| path | resource |"
    yield "| --- | --- |"
    by_right: dict[Right, list[str]] = {}
    for group in ENDPOINT_GROUPS:
        name = f"`/{group.segments[0]}`"
        if name not in (names := by_right.setdefault(group.right, [])):
            names.append(name)
    for right, names in by_right.items():
        if right != PROXY:
            yield f"| {', '.join(names)} | {_right_cell(right)} |"
    yield f"| everything else | {_right_cell(PROXY)} |"


def _endpoints() -> Iterator[tuple[EndpointGroup, KubeletEndpoint]]:
    return ((group, endpoint) for group in ENDPOINT_GROUPS for endpoint in group.endpoints)


def _path_cell(endpoint: KubeletEndpoint) -> str:
    return ", ".join(f"`{_PATTERN.sub('}', path)}`" for path in endpoint.paths)


def _listeners_cell(listeners: frozenset[ListenerKind]) -> str:
    return (
        "all" if listeners == frozenset(ListenerKind) else ", ".join(kind for kind in ListenerKind if kind in listeners)
    )


def _right_cell(right: Right) -> str:
    text = f"`nodes/{right.subresource}`"
    text += ", else `nodes/proxy`" if right.or_proxy else ""
    return text + (", verb `create`" if right.is_create else "")
