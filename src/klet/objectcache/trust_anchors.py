"""Root certificates out of trust bundles, as files show them. Pure."""

import base64
import binascii
import random
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from klet.api.certificates import ClusterTrustBundle

_BEGIN: Final = re.compile(r"^-----BEGIN ([^-\n]+)-----[ \t]*\r?\n", re.MULTILINE)
_END: Final = re.compile(r"^-----END ([^-\n]+)-----", re.MULTILINE)
_LINE: Final = 64


def merge_anchors(bundles: Sequence[ClusterTrustBundle], *, randomness: random.Random) -> bytes:
    """Return every certificate once, in random order: users must not rely on one."""
    found = list(dict.fromkeys(block for bundle in bundles for block in read_blocks(bundle.spec.trust_bundle)))
    randomness.shuffle(found)
    return b"".join(map(_encode, found))


def read_blocks(text: str) -> Iterable[bytes]:
    """Return what is in a bundle's blocks, whatever they are called. One that is damaged is none."""
    for body in _bodies(text):
        # Headers end with an empty line.
        content = body.replace("\r", "").partition("\n\n")[2] if ":" in body else body
        try:
            yield base64.b64decode("".join(content.split()), validate=True)
        except binascii.Error:
            continue


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


def _encode(content: bytes) -> bytes:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""]).encode()
