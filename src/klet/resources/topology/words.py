"""Hints in words, for the journal. Pure."""

from collections.abc import Sequence
from typing import Final

from klet.host.cpulist import format_cpu_list
from klet.resources.topology.hints import Hint, Hints, nodes_of

_SHOWN: Final = 8


def describe_hint(hint: Hint) -> str:
    """Return `NUMA nodes 0-1`."""
    if hint.mask is None:
        return "any NUMA nodes"
    nodes = list(nodes_of(hint.mask))
    return f"NUMA node{'s' if len(nodes) > 1 else ''} {format_cpu_list(nodes)}"


def describe_hints(hints: Sequence[Hints]) -> str:
    """Return `cpu {0} ({0-1}); memory nowhere`: what is not preferred in parentheses, what may be anywhere left out."""
    by_resource = {name: each for provided in hints for name, each in provided.items() if each is not None}
    return "; ".join(f"{name} {_list_hints(each)}" for name, each in sorted(by_resource.items()))


def _list_hints(hints: Sequence[Hint]) -> str:
    shown = " ".join(_short(hint) for hint in hints[:_SHOWN]) or "nowhere"
    return f"{shown} and {len(hints) - _SHOWN} more" if len(hints) > _SHOWN else shown


def _short(hint: Hint) -> str:
    text = "{any}" if hint.mask is None else f"{{{format_cpu_list(nodes_of(hint.mask))}}}"
    return text if hint.preferred else f"({text})"
