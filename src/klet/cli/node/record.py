"""What a node chose when it was first made, kept so that it stays the same node."""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import msgspec

from klet.errors import KletError
from klet.host.files import write_atomic


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses and ports of one node."""

    subnet: str
    subnet6: str = ""
    port: int
    healthz_port: int

    def subnets(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return (IPv4Network(self.subnet), *((IPv6Network(self.subnet6),) if self.subnet6 else ()))


class DamagedRecord(KletError):
    """A state file that cannot be read."""


def read_record(path: Path) -> NodeRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeRecord)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedRecord(f"{path}: {error}; `klet down --purge` removes the node and its state") from error


def write_record(path: Path, record: NodeRecord) -> None:
    write_atomic(path, msgspec.json.encode(record), mode=0o600)


def choose_ports(
    port: int, healthz_port: int, *, is_free: Mapping[int, bool], is_default: bool
) -> tuple[int, int] | None:
    """Return the node's two ports. The default node has upstream's or none; another may take the next free pair."""
    if is_free.get(port) and is_free.get(healthz_port):
        return port, healthz_port
    if is_default:
        return None
    pairs = ((first, first + 1) for first in sorted(is_free) if first > port and (first - port) % 2 == 0)
    return next((pair for pair in pairs if is_free.get(pair[0]) and is_free.get(pair[1])), None)
