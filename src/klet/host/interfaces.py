"""The addresses of the machine's network interfaces, asked of the kernel over netlink."""

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from klet.host.errors import HostError

_RTM_NEWADDR: Final = 20
_RTM_GETADDR: Final = 22
_DUMP: Final = 0x1 | 0x300
_DONE: Final = 3
_FAILED: Final = 2
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_HEADER: Final = struct.Struct("=IHHII")
_ADDRESS: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_CHUNK: Final = 1 << 16
_DEADLINE: Final = 5


def read_local_addresses() -> frozenset[IPv4Address | IPv6Address]:
    """Return every address of every interface."""
    request = _HEADER.pack(_HEADER.size + _ADDRESS.size, _RTM_GETADDR, _DUMP, 1, 0) + _ADDRESS.pack(0, 0, 0, 0, 0)
    found: set[IPv4Address | IPv6Address] = set()
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(_DEADLINE)
            netlink.send(request)
            while True:
                answer = netlink.recv(_CHUNK)
                found.update(parse_addresses(answer))
                kinds = {kind for kind, _ in _messages(answer)}
                if _FAILED in kinds:
                    raise HostError("cannot read the addresses of the network interfaces: the kernel refuses")
                if _DONE in kinds:
                    return frozenset(found)
    except OSError as error:
        raise HostError(f"cannot read the addresses of the network interfaces: {error}") from error


def parse_addresses(answer: bytes) -> Iterator[IPv4Address | IPv6Address]:
    """Yield the addresses in one answer of the kernel; of a pair of ends, ours."""
    for kind, body in _messages(answer):
        if kind == _RTM_NEWADDR:
            attributes = dict(_attributes(body[_ADDRESS.size :]))
            if (own := attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)) is not None:
                yield ip_address(own)


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    while len(answer) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(answer)
        if length < _HEADER.size:
            return
        yield kind, answer[_HEADER.size : length]
        answer = answer[_aligned(length) :]


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    while len(body) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(body)
        if length < _ATTRIBUTE.size:
            return
        yield kind, body[_ATTRIBUTE.size : length]
        body = body[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
