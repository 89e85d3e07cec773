"""Texts from outside: output of commands, answers of servers, errors of the runtime and of plugins. Pure.

They are cut before anything else is done with them: to decode, quote and publish a text costs what the text is long.
"""

import re
from typing import Final

LONGEST_OUTPUT: Final = 10 * 1024
"""Bytes that are kept of what a command, a server or the runtime says; upstream's limit for probes."""
LONGEST_WORD: Final = 1024
"""Bytes that are kept of what should be a word or a name."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and line ends; also what turns the direction of a line."""
_MORE: Final = "…"
_MORE_BYTES: Final = len(_MORE.encode())


def read_output(*parts: bytes, limit: int = LONGEST_OUTPUT) -> str:
    """Decode the first bytes of several outputs, one after the other; what is not UTF-8 is replaced."""
    start = bytearray()
    for part in parts:
        start += part[: limit - len(start)]
    return start.decode("utf-8", "replace")


def shorten(text: str, limit: int = LONGEST_OUTPUT) -> str:
    """Keep at most so many bytes of a text, and no half character; an ellipsis shows that there was more."""
    if text.isascii():
        return text if len(text) <= limit else text[: limit - _MORE_BYTES] + _MORE
    # A character has at least one byte, so no more of them can be wanted.
    start = text[: limit + 1].encode("utf-8", "surrogatepass")
    if len(start) <= limit:
        return text
    return start[: limit - _MORE_BYTES].decode("utf-8", "ignore") + _MORE


def as_terminal_text(text: str) -> str:
    r"""Show control characters instead of sending them, as `\u001b`; within the strings of JSON that means the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
