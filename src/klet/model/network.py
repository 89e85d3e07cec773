"""The network of a pod: its addresses, and its name resolution as the runtime writes it into resolv.conf. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address

from msgspec import Struct


class DnsConfig(Struct, frozen=True):
    """Servers, search domains and options, in order."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def order_ips(ips: Sequence[str], *, prefer_ipv6: bool) -> tuple[str, ...]:
    """Return at most one address of each family, the node's primary family first (sortPodIPs)."""
    first: dict[int, str] = {}
    for ip in ips:
        family, written = _parsed_ip(ip)
        first.setdefault(family, written)
    families = (6, 4) if prefer_ipv6 else (4, 6)
    return tuple(first[family] for family in families if family in first)


def ip_family(ip: str) -> int:
    """Return 4 or 6, without a check of the rest of the address."""
    return 6 if ":" in ip else 4


@lru_cache(maxsize=1024)
def _parsed_ip(text: str) -> tuple[int, str]:
    """Return the family of an address and its canonical text; cached, as every status of a pod needs it."""
    ip = ip_address(text)
    return ip.version, str(ip)
