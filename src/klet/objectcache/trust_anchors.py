"""Root certificates out of trust bundles, as files show them. Pure."""

import base64
import binascii
import random
import re
from collections.abc import Iterable, Sequence
from typing import Final

from klet.api.certificates import ClusterTrustBundle
from klet.api.meta import LabelSelector
from klet.api.selectors import label_selector

_BLOCK: Final = re.compile(r"^-----BEGIN ([^-\n]+)-----[ \t]*\r?\n(.*?)^-----END \1-----", re.MULTILINE | re.DOTALL)
_LINE: Final = 64


def choose_bundles(
    bundles: Iterable[ClusterTrustBundle], *, signer: str, selector: LabelSelector | None
) -> list[ClusterTrustBundle]:
    """Those of a signer that a selector takes; without a selector none."""
    chosen = label_selector(selector)
    return [each for each in bundles if each.spec.signer_name == signer and chosen.matches(each.metadata.labels)]


def merge_anchors(bundles: Sequence[ClusterTrustBundle], *, randomness: random.Random) -> bytes:
    """Every certificate once, in no order: nobody shall come to rely on one."""
    found = list(dict.fromkeys(block for bundle in bundles for block in _blocks(bundle.spec.trust_bundle)))
    randomness.shuffle(found)
    return b"".join(map(_encode, found))


def _blocks(text: str) -> Iterable[bytes]:
    """What is in a bundle's blocks, whatever they are called. One that is damaged is none."""
    for match in _BLOCK.finditer(text):
        body = match[2]
        if ":" in body:
            body = body.replace("\r", "").partition("\n\n")[2]  # headers end with an empty line
        try:
            yield base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error:
            continue


def _encode(content: bytes) -> bytes:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""]).encode()
