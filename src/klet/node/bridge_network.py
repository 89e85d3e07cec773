"""klet's own pod network, for nodes without another one: a bridge with the node's pod CIDRs (what kubenet did).

It is a CNI list of the standard plugins in the directory that the runtime looks at. A configuration of anybody else
wins: then nothing is written.
"""

import json
import logging
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.threads import Threads
from klet.cri.port import StatusCall
from klet.errors import KletError
from klet.host.cni import Subnet, build_cni_list, find_configurations
from klet.host.errors import file_error
from klet.host.files import write_atomic
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

FILE: Final = "10-klet-bridge.conflist"
DEFAULT_DIRECTORY: Final = Path("/etc/cni/net.d")
_MODE: Final = 0o644


class BadCidr(KletError):
    """A pod CIDR that is no network."""


class BridgeNames(Struct, frozen=True):
    """What the network, its bridge and the directory of its leases are called; the plugins choose the last one."""

    network: str = "klet-bridge"
    bridge: str = "cbr0"
    leases: str = ""


class BridgeNetwork:
    """Writes the configuration for the node's pod CIDRs, and again when they change."""

    def __init__(self, *, runtime: StatusCall, names: BridgeNames, threads: Threads) -> None:
        self._runtime = runtime
        self._names = names
        self._threads = threads

    async def use(self, cidrs: tuple[str, ...]) -> None:
        """Write the network; raises KletError, and is called again then."""
        answer = await self._runtime.status(cri.StatusRequest(verbose=True))
        directory = find_cni_directory(answer)
        await self._threads.run(write_network, directory, parse_cidrs(cidrs), self._names)


def find_cni_directory(answer: cri.StatusResponse) -> Path:
    """Return where the runtime looks for its network; the default if it does not report it."""
    try:
        config = json.loads(answer.info.get("config", "{}"))
    except (ValueError, RecursionError):
        return DEFAULT_DIRECTORY
    cni = config.get("cni") if isinstance(config, dict) else None
    directory = cni.get("confDir") if isinstance(cni, dict) else None
    return Path(directory) if isinstance(directory, str) and directory else DEFAULT_DIRECTORY


def parse_cidrs(cidrs: tuple[str, ...]) -> tuple[Subnet, ...]:
    try:
        return tuple(ip_network(cidr, strict=False) for cidr in cidrs)
    except ValueError as error:
        raise BadCidr(f"spec.podCIDRs of the node: {error}") from error


def write_network(directory: Path, subnets: tuple[Subnet, ...], names: BridgeNames) -> bool:
    """Write klet's own configuration unless there is another one; False if there is. It blocks."""
    others = [path.name for path in find_configurations(directory) if path.name != FILE]
    if others:
        logger.info("The pod network is configured by others", extra={"directory": str(directory), "files": others})
        return False
    text = build_cni_list(
        name=names.network, bridge=names.bridge, subnets=subnets, data_dir=names.leases, with_loopback=True
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("make", directory, error) from error
    write_atomic(directory / FILE, text.encode(), mode=_MODE)
    logger.info("Pod network written", extra={"path": str(directory / FILE)})
    return True
