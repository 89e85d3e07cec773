"""Under which address the machine is found by others."""

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

# Addresses for documentation: a datagram socket that is connected to them sends nothing.
_FAR: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_DISCARD: Final = 9


def find_node_addresses(given: Iterable[str]) -> tuple[str, ...]:
    """The addresses that were given for the node, or else the one it has towards the world, if any.

    One of all zeros only says which family is preferred.
    """
    found = tuple(text.strip() for text in given if _is_usable(text.strip()))
    default = find_default_address() if not found else None
    return found if default is None else (default,)


def find_default_address(*, prefer: int = 4) -> str | None:
    """The address that the kernel would use towards the world; None without a default route.

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
    """What the resolver says of a name, in its order; nothing if it does not know it. It may block for long."""
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
