"""Ports for agents of tests, so that several live on one machine."""

import random
import socket
from typing import Final

_FIRST, _LAST = 12000, 19999
"""Below what the kernel hands out to clients, and below the ports of `klet up`: no process takes one in between."""
_LOOPBACK: Final = "127.0.0.1"


def find_free_ports(count: int) -> tuple[int, ...]:
    """Return free ports of the loopback."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(_FIRST, _LAST), k=_LAST - _FIRST):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    return tuple(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
        return True
