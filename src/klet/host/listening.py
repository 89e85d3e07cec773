"""Which process holds a port of this machine: for errors about a taken port, and for host ports of pods."""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.threads import Threads
from klet.host.errors import FileError, MalformedFile
from klet.host.files import read_text
from klet.host.procfs import ProcReader

TCP: Final = "TCP"
UDP: Final = "UDP"
UNSEEN: Final = "a process that cannot be seen"
_BOUND: Final = {TCP: ("tcp", "0A"), UDP: ("udp", "07")}
"""The file under /proc/net, and the state of a socket there that waits for others."""


class HostPort(Struct, frozen=True):
    """A port of the host; an address that is empty or all zeros means every one."""

    number: int
    protocol: str = TCP
    address: str = ""


class HeldPort(Struct, frozen=True):
    """A port and the process that holds it, as `name (pid 7)`."""

    port: HostPort
    holder: str


class BoundSocket(Struct, frozen=True):
    """A socket that waits on an address."""

    address: IPv4Address | IPv6Address
    inode: int


def parse_sockets(text: str, number: int, *, protocol: str = TCP) -> tuple[BoundSocket, ...]:
    """Return the sockets that wait on a port, from /proc/net/tcp, udp or their sixth versions."""
    return tuple(_sockets(text, number, _BOUND[protocol][1]))


def serves(socket: BoundSocket, port: HostPort) -> bool:
    """Return whether what comes to the port would come to the socket."""
    wanted = ip_address(port.address) if port.address else None
    return wanted is None or wanted.is_unspecified or socket.address.is_unspecified or socket.address == wanted


def find_listener(number: int, *, root: Path = Path("/")) -> str:
    """Return the process that listens on a TCP port, as `name (pid 7)`; empty if it cannot be seen.

    It is not seen where it belongs to another user or to another network namespace's view of /proc.
    """
    return _find_process(_find_sockets(root / "proc", HostPort(number)), root)


def find_holders(ports: Sequence[HostPort], *, root: Path = Path("/")) -> tuple[HeldPort, ...]:
    """Return those of the ports that a process of the host holds."""
    found = ((port, _find_sockets(root / "proc", port)) for port in ports if port.protocol in _BOUND)
    return tuple(HeldPort(port, _find_process(sockets, root) or UNSEEN) for port, sockets in found if sockets)


class HostSockets:
    """The sockets of this machine."""

    def __init__(self, *, threads: Threads) -> None:
        self._threads = threads

    async def holders(self, ports: Sequence[HostPort]) -> tuple[HeldPort, ...]:
        return await self._threads.run(find_holders, ports)


def _sockets(text: str, number: int, state: str) -> Iterator[BoundSocket]:
    ending = f":{number:04X}"
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[1].endswith(ending) and fields[3] == state and fields[9].isdigit():
            yield BoundSocket(_address(fields[1].removesuffix(ending)), int(fields[9]))


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return an address as the kernel prints it: words of the machine's byte order, which is little-endian here."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    return ip_address(b"".join(words))


def _find_sockets(proc: Path, port: HostPort) -> tuple[BoundSocket, ...]:
    found: list[BoundSocket] = []
    for family in ("", "6"):
        try:
            text = read_text(proc / "self" / "net" / f"{_BOUND[port.protocol][0]}{family}")
        except FileError:
            continue  # a kernel without this family
        sockets = parse_sockets(text, port.number, protocol=port.protocol)
        found += [socket for socket in sockets if serves(socket, port)]
    return tuple(found)


def _find_process(sockets: Sequence[BoundSocket], root: Path) -> str:
    proc = root / "proc"
    wanted = {f"socket:[{socket.inode}]" for socket in sockets}
    if not wanted:
        return ""
    for process in sorted(_pids(proc)):
        if _holds(proc / str(process) / "fd", wanted):
            try:
                return f"{ProcReader(root=root).process_stat(process).name} (pid {process})"
            except (FileError, MalformedFile):
                return f"pid {process}"
    return ""


def _pids(proc: Path) -> Iterator[int]:
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


def _holds(descriptors: Path, wanted: set[str]) -> bool:
    try:
        return any(str(entry.readlink()) in wanted for entry in descriptors.iterdir())
    except OSError:
        return False  # it has ended, or is not ours to look at
