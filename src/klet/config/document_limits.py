"""Refuses a YAML text that is small to look at and harmful to build: too deep, or huge once aliases are filled in.

Building goes as deep as the text nests, in C, where too much of it ends the process; and nine lines of aliases of
aliases fill any memory. The events of the parser show both beforehand.
"""

from collections.abc import Iterable
from typing import Final

import yaml

from klet.config.errors import ConfigError

DEEPEST: Final = 100
MOST_NODES: Final = 500_000
"""Each costs a hundred times the bytes that it was written in."""
MOST_ALIASED: Final = 100_000
"""How many nodes aliases may stand for, all in all."""


def check_limits(events: Iterable[yaml.Event]) -> None:
    """Follow the events of the first document and raise ConfigError at the first sign of harm."""
    sizes: dict[str, int] = {}
    open_nodes: list[_Node] = []
    aliased = 0
    for count, event in enumerate(events):
        if count >= MOST_NODES:
            raise ConfigError(f"yaml: line {_line(event)}: document has more than {MOST_NODES} values")
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append(_Node(event.anchor))
            if len(open_nodes) > DEEPEST:
                raise ConfigError(f"yaml: line {_line(event)}: nested more than {DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_nodes.pop()
            if closed.anchor is not None:
                sizes[closed.anchor] = closed.size
            _grow(open_nodes, closed.size)
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor or "", 1)
            aliased += size
            if aliased > MOST_ALIASED:
                raise ConfigError(f"yaml: line {_line(event)}: document contains excessive aliasing")
            _grow(open_nodes, size)
        elif isinstance(event, yaml.ScalarEvent):
            _grow(open_nodes, 1)
        elif isinstance(event, yaml.DocumentEndEvent):
            return


class _Node:
    """A collection whose end has not been seen."""

    __slots__ = ("anchor", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.size = 1


def _grow(open_nodes: list[_Node], size: int) -> None:
    if open_nodes:
        open_nodes[-1].size += size


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
