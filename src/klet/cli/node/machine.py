"""Looks at the machine: which programs, ports, addresses and switches it has."""

import os
import shutil
import socket
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from klet.cli.node.host_ledger import HostBefore
from klet.cli.node.iptables import parse_save, shared_chains
from klet.cli.node.kubelet_config import CRUN, RESOLV_CONF, SYSTEMD_RESOLV_CONF, choose_resolv_conf
from klet.cli.node.node import NodeError
from klet.cli.node.own_images import is_static_executable
from klet.cli.node.packages import SYSTEM_PATH, choose_cni_directory, find_programs
from klet.cli.node.subnet import choose_ipv6_subnet, has_global_ipv6, parse_ipv6_routes
from klet.host.files import read_text
from klet.host.processes import run_process

COMMAND_DEADLINE = timedelta(seconds=30)
IPTABLES_SAVE = ("iptables-save", "ip6tables-save")
SYSCTL = Path("/proc/sys")


class Programs(Struct, frozen=True):
    """Where the programs of a node are."""

    containerd: Path
    ctr: Path
    busybox: Path
    cni: Path
    crun: Path | None
    """A second runtime, for pods that ask for it; nothing else needs it."""


def find_needed_programs() -> dict[str, Path | None]:
    return find_programs(_which_usable, lambda path: path.is_file())


def locate_programs() -> Programs:
    found = find_needed_programs()
    containerd, ctr, busybox = (found[name] for name in ("containerd", "ctr", "busybox"))
    cni = choose_cni_directory(lambda path: path.is_file())
    if containerd is None or ctr is None or busybox is None or cni is None:
        raise NodeError("the packages are installed and their programs are not where they should be; see `apt-get -f`")
    return Programs(containerd=containerd, ctr=ctr, busybox=busybox, cni=cni, crun=which(CRUN))


def which(program: str) -> Path | None:
    found = shutil.which(program, path=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}")
    return Path(found) if found else None


def _which_usable(program: str) -> Path | None:
    found = which(program)
    # A busybox that needs a loader is of no use in an image that holds nothing else.
    if found and program == "busybox" and not is_static_executable(found.read_bytes()):
        return None
    return found


async def observe_host(switches: Iterable[str]) -> HostBefore:
    chains = {}
    for program in IPTABLES_SAVE:
        if found := which(program):
            saved = await run_process([str(found)], timeout=COMMAND_DEADLINE)
            chains[program] = tuple(sorted(shared_chains(parse_save(saved.stdout.decode(errors="replace")))))
    return HostBefore(switches={switch: read_text(SYSCTL / switch).strip() for switch in switches}, chains=chains)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def ipv6_subnet(tag: str) -> str:
    with suppress(FileNotFoundError):
        if has_global_ipv6(Path("/proc/net/if_inet6").read_text()):
            return str(choose_ipv6_subnet(parse_ipv6_routes(Path("/proc/net/ipv6_route").read_text()), tag=tag) or "")
    return ""


def resolv_conf() -> str:
    with suppress(FileNotFoundError):
        text = Path(RESOLV_CONF).read_text(errors="replace")
        return choose_resolv_conf(text, has_systemd_resolv_conf=Path(SYSTEMD_RESOLV_CONF).exists())
    return ""
