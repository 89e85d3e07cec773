"""Name resolution of a pod, as the runtime writes it into the pod's resolv.conf."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DnsConfig:
    """Servers, search domains and options, in order."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
