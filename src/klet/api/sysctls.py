"""Kernel parameters of a pod's own namespaces: their names, whose they are, and which do no harm to others. Pure."""

from typing import Final

IPC: Final = "IPC"
NET: Final = "Net"
SAFE_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
"""All of them are a namespace's own since Linux 4.15."""
_IPC_PREFIXES: Final = ("kernel.shm", "kernel.msg", "fs.mqueue.")
_ANYTHING: Final = "*"


def normalize_sysctl(name: str) -> str:
    """Return the kernel's form of a name, with dots; names may be written with dots or slashes as separators."""
    first = next((character for character in name if character in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def namespace_of(sysctl: str) -> str | None:
    """Return the namespace that a parameter, or a pattern of them, belongs to; None for one of the whole machine."""
    if sysctl.startswith("net."):
        return NET
    return IPC if sysctl == "kernel.sem" or sysctl.startswith(_IPC_PREFIXES) else None


def matches_sysctl(sysctl: str, pattern: str) -> bool:
    """Return whether a parameter is meant by a pattern: itself, or what begins as one that ends with `*`."""
    if pattern.endswith(_ANYTHING):
        return sysctl.startswith(pattern.removesuffix(_ANYTHING))
    return sysctl == pattern
