"""Network interfaces: looking at those of one bridge and deleting them, over netlink.

Two kernel messages do not justify a library, and the `ip` program is not on every machine.
"""

import errno
import os
import socket
import struct
from pathlib import Path

from klet.host.errors import HostError

SYS_NET = Path("/sys/class/net")

_RTM_DELLINK = 17
_REQUEST_WITH_ANSWER = 0x1 | 0x4
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BBHiII")
_ERROR = struct.Struct("=i")


class InterfaceError(HostError):
    """The kernel refused to delete an interface."""


def exists(name: str) -> bool:
    return (SYS_NET / name).exists()


def members(bridge: str) -> list[str]:
    """Return the interfaces that are plugged into a bridge."""
    ports = SYS_NET / bridge / "brif"
    return sorted(entry.name for entry in ports.iterdir()) if ports.is_dir() else []


def names(prefix: str) -> list[str]:
    return sorted(entry.name for entry in SYS_NET.iterdir() if entry.name.startswith(prefix))


def delete(name: str) -> None:
    """Delete an interface; one that is gone already is fine."""
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        return
    link = _LINK.pack(socket.AF_UNSPEC, 0, 0, index, 0, 0)
    request = _HEADER.pack(_HEADER.size + len(link), _RTM_DELLINK, _REQUEST_WITH_ANSWER, 1, 0) + link
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(5)
        netlink.send(request)
        answer = netlink.recv(4096)
    (code,) = _ERROR.unpack_from(answer, _HEADER.size)
    if -code not in {0, errno.ENODEV}:
        raise InterfaceError(f"cannot delete interface {name}: {os.strerror(-code)}")
