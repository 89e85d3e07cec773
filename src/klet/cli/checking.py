"""Checks a manifest as the agent will: by the agent's own decoding, with every rule looked at."""

import socket
from collections.abc import Sequence

from klet.api.static_pods import StaticOrigin
from klet.sources.decode import Origin, decode_pod
from klet.sources.errors import ManifestError


def node_name() -> str:
    """Return the node's name as the agent chooses it when no flag says another."""
    return socket.gethostname().strip().lower()


def check_manifest(content: bytes) -> Sequence[str]:
    """Return what is wrong with the pod, one line for each rule, beginning with the field."""
    origin = Origin(kind=StaticOrigin.FILE, location="", node_name=node_name())
    try:
        decode_pod(content, origin)
    except ManifestError as error:
        return [str(problem) for problem in error.problems]
    return ()
