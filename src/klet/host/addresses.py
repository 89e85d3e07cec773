"""Which addresses the machine has, asked of the kernel over netlink, and under which one it is found by others."""

import socket
import struct
from collections.abc import Iterable, Iterator
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeAlias

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.host.errors import HostError
from klet.model.unknown import Unknown

IPAddress: TypeAlias = IPv4Address | IPv6Address

NO_DEFAULT_ROUTE: Final = Unknown("no default routes found")

# Addresses for documentation: a datagram socket that is connected to them sends nothing.
_FAR: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_DISCARD: Final = 9
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


class AddressFacts(Struct, frozen=True, kw_only=True):
    """What is known of the machine's addresses. They may change at any time."""

    local: frozenset[IPAddress] = frozenset()
    """On the interfaces of the machine."""
    looked_up: tuple[IPAddress, ...] = ()
    """The resolver's answer for the machine's name."""
    default: IPAddress | Unknown = NO_DEFAULT_ROUTE
    """Where traffic to the world comes from."""


class AddressReader:
    """Reads the addresses; of the resolver, which may hang, it keeps the last answer."""

    def __init__(self, *, threads: Threads, patience: timedelta, clock: Clock) -> None:
        self._threads = threads
        self._patience = patience
        self._clock = clock
        self._looked_up: tuple[IPAddress, ...] = ()
        self._is_looking_up = False

    async def read(self, *, name: str, prefer: int, lookup: bool) -> AddressFacts:
        """Read the addresses, with `lookup` also from the resolver; if that takes long, its last answer holds."""
        try:
            local = read_local_addresses()
        except HostError as error:
            return AddressFacts(default=Unknown(str(error)))
        if lookup:
            await first_of(self._ask_resolver(name), self._clock.sleep(self._patience))
        default = find_default_address(prefer=prefer)
        return AddressFacts(
            local=local,
            looked_up=self._looked_up if lookup else (),
            default=NO_DEFAULT_ROUTE if default is None else ip_address(default),
        )

    async def _ask_resolver(self, name: str) -> None:
        if not self._is_looking_up:
            self._is_looking_up = True
            await self._threads.run(self._look_up, name)

    def _look_up(self, name: str) -> None:
        """Ask the resolver in a thread. The answer is kept even if the caller has stopped waiting."""
        try:
            self._looked_up = tuple(ip_address(text) for text in look_up_addresses(name))
        finally:
            self._is_looking_up = False


def find_node_addresses(given: Iterable[str], *, prefer: int = 4) -> tuple[str, ...]:
    """Return the addresses that were given for the node, or else the one it has towards the world, if any.

    One of all zeros only says which family is preferred: `prefer`.
    """
    found = tuple(text.strip() for text in given if _is_usable(text.strip()))
    default = find_default_address(prefer=prefer) if not found else None
    return found if default is None else (default,)


def find_default_address(*, prefer: int = 4) -> str | None:
    """Return the address that the kernel would use towards the world; None without a default route.

    `prefer` is the version of IP that is tried first.
    """
    for family, far in _FAR if prefer == 4 else reversed(_FAR):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((far, _DISCARD))
                return str(probe.getsockname()[0])
        except OSError:
            continue  # no such family, or no route in it
    return None


def look_up_addresses(name: str) -> tuple[str, ...]:
    """Return what the resolver says of a name, in its order; nothing if it does not know it. It may block for long."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    # A link-local address comes with its interface behind a percent sign.
    return tuple(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found))


def _is_usable(text: str) -> bool:
    try:
        return not ip_address(text).is_unspecified
    except ValueError:
        return False


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
