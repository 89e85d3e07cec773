"""Text that a terminal shows. What pods, registries and runtimes say must not control the terminal. Pure."""

import re
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and line ends; also what turns the direction of a line."""


def as_terminal_text(text: str) -> str:
    r"""Show control characters instead of sending them, as `\u001b`; within the strings of JSON that means the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
