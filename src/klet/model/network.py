"""Name resolution of a pod, as the runtime writes it into the pod's resolv.conf."""

from msgspec import Struct


class DnsConfig(Struct, frozen=True):
    """Servers, search domains and options, in order."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
