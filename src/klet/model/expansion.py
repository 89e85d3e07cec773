"""`$(NAME)` in environment values, commands and arguments (upstream: third_party/forked/golang/expansion).

A value may be named many times, and in the environment by values that are named in turn: what comes of it is limited.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from klet.errors import KletError

MOST_EXPANDED: Final = 6 * 1024 * 1024
"""Characters. Linux starts no process with more, whatever its limits are."""


class ExpansionError(KletError):
    """A text that gets too long when its references are replaced."""


def expand(text: str, values: Mapping[str, str], *, room: int = MOST_EXPANDED) -> str:
    """Replace `$(NAME)` by its value; `$$` is a plain dollar, and an unknown name stays as written."""
    expanded: list[str] = []
    for is_name, piece in _pieces(text):
        shown = values.get(piece, f"$({piece})") if is_name else piece
        room -= len(shown)
        if room < 0:
            raise ExpansionError("too long after its references were replaced")
        expanded.append(shown)
    return "".join(expanded)


def expand_all(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Expand several texts, which are limited together."""
    room = MOST_EXPANDED
    expanded: list[str] = []
    for text in texts:
        expanded.append(expand(text, values, room=room))
        room -= len(expanded[-1])
    return expanded


def names_in(text: str) -> frozenset[str]:
    """Return the names that a text refers to."""
    return frozenset(piece for is_name, piece in _pieces(text) if is_name)


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Return the text in pieces, each with whether it is a name to be replaced."""
    last_end = text.rfind(")")
    index = 0
    while index < len(text):
        dollar = text.find("$", index)
        if dollar != index:
            end = len(text) if dollar < 0 else dollar
            yield False, text[index:end]
            index = end
            continue
        follower = text[index + 1 : index + 2]
        if follower == "$":
            yield False, "$"
            index += 2
        elif follower == "(" and index + 2 <= last_end:
            end = text.index(")", index + 2)
            yield True, text[index + 2 : end]
            index = end + 1
        else:
            yield False, text[index : index + 2]
            index += 2
