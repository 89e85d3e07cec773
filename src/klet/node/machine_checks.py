"""Settings that are well formed but cannot work on this machine: swap, CPUs that are not there, too much reserved,
paths that are taken by something else. All of it is checked before anything is made.
"""

import stat
from pathlib import Path

from klet.api.quantity import Format, Quantity
from klet.config.command_line import Settings
from klet.config.errors import ConfigError
from klet.config.reserved import parse_cpu_set
from klet.config.sections import LIMITED_SWAP
from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import MachineInfo
from klet.model.pod_resources import EPHEMERAL_STORAGE
from klet.node.capacity import Resources, find_reservation_problems, machine_capacity
from klet.node.settings import NodeSettings, Reservations, cut_reservations

SWAP_REFUSED = (
    "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false (failSwapOn)"
)


def check_machine(given: Settings, machine: MachineInfo) -> None:
    """Raise ConfigError for the first setting that asks more of the machine than it has."""
    config = given.config
    if config.fail_swap_on and machine.has_swap:
        raise ConfigError(SWAP_REFUSED)
    if config.memory_swap.swap_behavior == LIMITED_SWAP and machine.cgroup_version == 1:
        raise ConfigError(
            f'memorySwap.swapBehavior "{LIMITED_SWAP}" needs cgroup v2, and this machine has cgroup v1: write NoSwap'
        )
    reserved = parse_cpu_set(config.reserved_system_cpus)
    if machine.online_cpus and not reserved <= machine.online_cpus:
        online = format_cpu_list(machine.online_cpus)
        raise ConfigError(
            f"reserved-cpus: {config.reserved_system_cpus} is not a subset of online-cpus: {online}: "
            "see reservedSystemCPUs (--reserved-cpus)"
        )
    reservations = cut_reservations(config, ignore_eviction=given.flags.experimental_allocatable_ignore_eviction)
    _check_reservations(machine_capacity(machine), reservations)


def check_storage(size: int | None, settings: NodeSettings) -> None:
    """Raise ConfigError if more local storage is reserved than the filesystem of the root directory has."""
    if size is not None and settings.counts_storage:
        capacity = {EPHEMERAL_STORAGE: Quantity.of(size, Format.BINARY_SI)}
        _check_reservations(capacity, settings.reservations)


def check_paths(*, root: Path, socket: Path) -> None:
    """Raise ConfigError if a path where the agent will make or replace something holds something else."""
    try:
        _check_root(root)
        _check_socket(socket, root=root)
    except OSError as error:
        raise ConfigError(f"--root-dir or --klet-socket {error.filename}: {error.strerror}") from error


def _check_reservations(capacity: Resources, reservations: Reservations) -> None:
    if problems := " ".join(find_reservation_problems(capacity, reservations)):
        raise ConfigError(
            f"invalid Node Allocatable configuration. {problems} Lower kubeReserved, systemReserved or evictionHard"
        )


def _check_root(root: Path) -> None:
    nearest = next(path for path in (root, *root.parents) if path.exists())
    if not nearest.is_dir():
        raise ConfigError(f"--root-dir {root}: {nearest} is not a directory")


def _check_socket(socket: Path, *, root: Path) -> None:
    if socket.exists() and not stat.S_ISSOCK(socket.stat().st_mode):
        raise ConfigError(f"socket (--klet-socket) {socket} exists and is not a socket: klet would have to remove it")
    if socket.parent != root and not socket.parent.is_dir():
        raise ConfigError(f"socket (--klet-socket) {socket}: there is no directory {socket.parent}: make it first")
