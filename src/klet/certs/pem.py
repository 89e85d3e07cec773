"""PEM text: its blocks, nothing of what is in them."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

_MARGIN: Final = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
_BEGIN: Final = "BEGIN"
_CERTIFICATE: Final = "CERTIFICATE"
_KEY: Final = "PRIVATE KEY"
_ENCRYPTED: Final = ("ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED")


def certificate_blocks(text: str) -> tuple[str, ...]:
    """Return the certificates of a text, in order, each ending with a newline. Everything else is left out."""
    return tuple(f"{block}\n" for label, block in _blocks(text) if label == _CERTIFICATE)


def key_block(text: str) -> str:
    """Return the first private key of a text, of whatever kind; empty if there is none."""
    return next((f"{block}\n" for label, block in _blocks(text) if label.endswith(_KEY)), "")


def is_encrypted(key: str) -> bool:
    """Return whether a key needs a password."""
    return any(mark in key for mark in _ENCRYPTED)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each label and the text from its beginning to the first end of that label."""
    begins: list[re.Match[str]] = []
    ends: dict[str, list[int]] = {}
    for margin in _MARGIN.finditer(text):
        if margin[1] == _BEGIN:
            begins.append(margin)
        else:
            ends.setdefault(margin[2], []).append(margin.end())
    done = 0
    for begin in begins:
        known = ends.get(begin[2], [])
        index = bisect_left(known, begin.end())
        if begin.start() >= done and index < len(known):
            done = known[index]
            yield begin[2], text[begin.start() : done]
