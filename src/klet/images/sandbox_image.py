"""The image of which the runtime makes sandboxes: from what containerd says of its configuration.

Containerd 1.6 does not pin it, and cannot get it back on a machine without a registry. Runtimes that say nothing of it
pin it.
"""

from typing import Final

import msgspec
from msgspec import Struct

from klet.wire import cri_v1_pb2 as cri

LONGEST_ANSWER: Final = 1 << 20
_DETAILS: Final = "config"


class _Configuration(Struct, frozen=True, rename="camel"):
    """What containerd says of its configuration; all else is skipped."""

    sandbox_image: str = ""


def parse_sandbox_image(status: cri.StatusResponse) -> str:
    """Return the image that the details of a runtime's status name; empty if they name none."""
    details = status.info.get(_DETAILS, "")
    if len(details) > LONGEST_ANSWER:
        return ""
    try:
        return msgspec.json.decode(details, type=_Configuration).sandbox_image
    except (msgspec.DecodeError, RecursionError):
        return ""
