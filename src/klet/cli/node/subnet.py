"""Chooses the addresses of the pods: a subnet that no route of the host leads to."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeVar

Network = TypeVar("Network", IPv4Network, IPv6Network)

IPV4_POOLS = (IPv4Network("10.83.0.0/16"), IPv4Network("172.29.0.0/16"), IPv4Network("192.168.0.0/16"))
IPV4_PREFIX = 24
IPV6_PREFIX = 64


def choose_subnet(routes: Sequence[IPv4Network], *, tag: str) -> IPv4Network | None:
    """Return the first free /24 after one that depends on the node, so that two nodes that start together differ."""
    return _first_free(_ipv4_candidates(tag), routes)


def choose_ipv6_subnet(routes: Sequence[IPv6Network], *, tag: str) -> IPv6Network | None:
    """Return a free /64 of a unique local prefix (RFC 4193) derived from the node."""
    return _first_free(_ipv6_candidates(tag), routes)


def parse_ipv4_routes(text: str) -> tuple[IPv4Network, ...]:
    """Return the destinations in /proc/net/route, which writes addresses in the machine's byte order."""
    routes = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        destination, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        routes.append(IPv4Network((destination, mask.bit_count())))
    return tuple(routes)


def parse_ipv6_routes(text: str) -> tuple[IPv6Network, ...]:
    """Return the destinations in /proc/net/ipv6_route."""
    routes = []
    for line in text.splitlines():
        fields = line.split()
        routes.append(IPv6Network((int(fields[0], 16), int(fields[1], 16)), strict=False))
    return tuple(routes)


def has_global_ipv6(text: str) -> bool:
    """Return whether /proc/net/if_inet6 shows an address of global scope on an interface that is not klet's own."""
    for line in text.splitlines():
        _, _, _, scope, _, interface = line.split()
        if scope == "00" and not interface.startswith("klet"):
            return True
    return False


def gateway(subnet: IPv4Network | IPv6Network) -> IPv4Address | IPv6Address:
    return subnet[1]


def _first_free(candidates: Iterable[Network], routes: Sequence[Network]) -> Network | None:
    # A default route leads everywhere and says nothing about what is in use.
    taken = [route for route in routes if route.prefixlen > 0]
    return next((subnet for subnet in candidates if not any(subnet.overlaps(route) for route in taken)), None)


def _ipv4_candidates(tag: str) -> Iterable[IPv4Network]:
    start = int(tag, 16) if tag else 0
    for pool in IPV4_POOLS:
        subnets = list(pool.subnets(new_prefix=IPV4_PREFIX))
        first = start % len(subnets)
        yield from subnets[first:] + subnets[:first]


def _ipv6_candidates(tag: str) -> Iterable[IPv6Network]:
    for attempt in range(64):
        digest = sha256(f"{tag}/{attempt}".encode()).digest()
        # fd, then 40 bits that make the prefix unlikely to exist twice, then subnet 0.
        yield IPv6Network((bytes([0xFD]) + digest[:5] + bytes(10), IPV6_PREFIX))
