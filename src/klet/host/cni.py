"""CNI configuration of a single node: pods on a bridge, with host ports and bandwidth limits."""

import json
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from klet.host.errors import file_error

CNI_VERSION = "0.4.0"
SUFFIXES = frozenset({".conf", ".conflist", ".json"})
"""Of the files that runtimes read."""
Subnet = IPv4Network | IPv6Network


def build_cni_list(
    *,
    name: str,
    bridge: str,
    subnets: Sequence[Subnet],
    data_dir: str = "",
    masquerade: bool = True,
    mtu: int = 0,
    with_loopback: bool = False,
) -> str:
    """Return a .conflist: bridge with host-local addresses (one from each subnet), portmap, bandwidth.

    `data_dir` keeps the leases of addresses apart from those of other networks on the machine. With `with_loopback` the
    list sets up `lo` too, for runtimes that do not.
    """
    ipam: dict[str, object] = {
        "type": "host-local",
        "ranges": [[{"subnet": str(subnet)}] for subnet in subnets],
        "routes": [{"dst": _ANYWHERE[subnet.version]} for subnet in subnets],
    }
    if data_dir:
        ipam["dataDir"] = data_dir
    bridge_plugin: dict[str, object] = {
        "type": "bridge",
        "bridge": bridge,
        "isGateway": True,
        "isDefaultGateway": False,
        "ipMasq": masquerade,
        "hairpinMode": True,
        "ipam": ipam,
    }
    if mtu:
        bridge_plugin["mtu"] = mtu
    plugins: list[dict[str, object]] = [
        bridge_plugin,
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ]
    if with_loopback:
        plugins.append({"type": "loopback"})
    return _dump({"cniVersion": CNI_VERSION, "name": name, "plugins": plugins})


def find_configurations(directory: Path) -> tuple[Path, ...]:
    """Return the files that a runtime would read there, in its order; none if there is no such directory. It blocks."""
    try:
        return tuple(sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise file_error("read", directory, error) from error


_ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def _dump(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
