"""Distinguishes a sandbox that failed for want of a network from one that failed otherwise.

The CRI has no code for it: containerd says so in words alone. Only people read what follows from it.
"""

from typing import Final

from klet.cri.errors import CriError
from klet.errors import KletError

_CONTAINERD: Final = "failed to setup network for sandbox"


def is_network_failure(error: KletError) -> bool:
    """Return whether the network plugin is why the runtime could not make a sandbox."""
    return isinstance(error, CriError) and _CONTAINERD in error.message
