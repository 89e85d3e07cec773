"""Reads PEM blocks from untrusted text, as Go does: headers, and text between blocks, are dropped."""

import base64
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

_BEGIN: Final = re.compile(r"^-----BEGIN ([^-\n]+)-----[ \t]*\r?\n", re.MULTILINE)
_END: Final = re.compile(r"^-----END ([^-\n]+)-----", re.MULTILINE)
_LINE: Final = 64


def read_blocks(text: str) -> Iterable[bytes]:
    """Return the content of all blocks of a text, of every type. A damaged block is skipped."""
    for body in _bodies(text):
        # Headers end with an empty line.
        content = body.replace("\r", "").partition("\n\n")[2] if ":" in body else body
        try:
            yield base64.b64decode("".join(content.split()), validate=True)
        except ValueError:  # also for characters that are not ASCII, which is no binascii.Error
            continue


def write_certificate(content: bytes) -> bytes:
    """Return a block of a certificate."""
    text = base64.b64encode(content).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""]).encode()


def _bodies(text: str) -> Iterable[str]:
    """Return what stands between each beginning and the first end of the same label."""
    ends: dict[str, list[re.Match[str]]] = {}
    for end in _END.finditer(text):
        ends.setdefault(end[1], []).append(end)
    done = 0
    for begin in _BEGIN.finditer(text):
        known = ends.get(begin[1], [])
        index = bisect_left(known, begin.end(), key=lambda end: end.start())
        if begin.start() >= done and index < len(known):
            done = known[index].end()
            yield text[begin.end() : known[index].start()]
