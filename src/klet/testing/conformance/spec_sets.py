"""Which specs of the suite run: focus and skip in the form of ginkgo, regular expressions on full names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_UNSTABLE: Final = (
    r"\[Serial\]",
    r"\[Disruptive\]",
    r"\[Slow\]",
    r"\[Flaky\]",
    r"\[Feature:.+\]",
    r"\[Alpha\]",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What ginkgo is asked to run; a spec runs if any focus matches its full name and no skip does."""

    focus: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        wanted = not self.focus or any(re.search(pattern, name) for pattern in self.focus)
        return wanted and not any(re.search(pattern, name) for pattern in self.skip)


NODE: Final = Selection(focus=(r"\[NodeConformance\]",), skip=_UNSTABLE)
"""The default: what a node has to do, without what disturbs other specs, takes long or is not finished."""


def choose_specs(*, focus: tuple[str, ...], skip: tuple[str, ...] | None) -> Selection:
    """What the user asked for; what he does not name is as in the default set. An empty skip skips nothing."""
    chosen = NODE.skip if skip is None else tuple(filter(None, skip))
    return Selection(focus=focus or NODE.focus, skip=chosen)


def exactly(names: Iterable[str]) -> Selection:
    """These specs and no others. Before a name ginkgo puts that of the suite."""
    return Selection(focus=tuple(f"(^| ){re.escape(name)}$" for name in sorted(names)))
