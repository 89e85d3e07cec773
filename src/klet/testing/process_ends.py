"""Whether a process ends that is not a child of the test."""

import os
import select

_PATIENCE_SECONDS = 10


def dies(pid: int) -> bool:
    """Return whether a process ends, at the latest soon; we are not its parent and cannot wait for it. It blocks."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], _PATIENCE_SECONDS)[0])
    finally:
        os.close(descriptor)
