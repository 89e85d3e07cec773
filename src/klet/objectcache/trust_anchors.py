"""Root certificates out of trust bundles, as files show them. Pure."""

import random
from collections.abc import Sequence

from klet.api.certificates import ClusterTrustBundle
from klet.model.pem_blocks import read_blocks, write_certificate


def merge_anchors(bundles: Sequence[ClusterTrustBundle], *, randomness: random.Random) -> bytes:
    """Return every certificate once, in random order: users must not rely on one."""
    found = list(dict.fromkeys(block for bundle in bundles for block in read_blocks(bundle.spec.trust_bundle)))
    randomness.shuffle(found)
    return b"".join(map(write_certificate, found))
