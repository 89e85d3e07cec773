"""Settings that are well formed but cannot work on this machine: too much reserved, names that cgroups cannot have,
places that are taken by something else. All of it is asked before anything is made.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klet.api.quantity import ZERO, Quantity
from klet.app.resource_settings import LIMITED_SWAP, machine_capacity
from klet.app.settings import AgentSettings
from klet.config.command_line import Settings
from klet.config.errors import ConfigError
from klet.config.reserved import effective_reservations, parse_cpu_set
from klet.config.thresholds import Signal, parse_thresholds
from klet.errors import KletError
from klet.host.cgroups.names import CgroupDriver, cgroup_path, parse_cgroupfs
from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import MachineInfo
from klet.model.pod_resources import MEMORY
from klet.resources.names import pods_root
from klet.runtime.config.id_blocks import choose_range

SWAP_REFUSED = (
    "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false (failSwapOn)"
)


def check_machine(given: Settings, machine: MachineInfo) -> None:
    """Raise ConfigError for the first setting that this machine cannot keep."""
    config = given.config
    if config.fail_swap_on and machine.swap:
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
    problems = " ".join(_reservation_problems(given, machine))
    if problems:
        raise ConfigError(
            f"invalid Node Allocatable configuration. {problems} Lower kubeReserved, systemReserved or evictionHard"
        )
    with _about(f'cgroupRoot (--cgroup-root) "{config.cgroup_root}"', advice="write a path such as /klet"):
        cgroup_path(pods_root(parse_cgroupfs(config.cgroup_root)), CgroupDriver(config.cgroup_driver))
    with _about(f"maxPods (--max-pods) {config.max_pods} with userNamespaces.idsPerPod", advice="lower one of them"):
        choose_range(per_pod=config.user_namespaces.ids_per_pod, max_pods=config.max_pods)


def check_places(settings: AgentSettings) -> None:
    """Raise ConfigError if a place that the agent will make or replace is something else."""
    try:
        _check_root(settings.root)
        _check_socket(settings.socket, root=settings.root)
    except OSError as error:
        raise ConfigError(f"--root-dir or --klet-socket {error.filename}: {error.strerror}") from error


def _check_root(root: Path) -> None:
    nearest = next(path for path in (root, *root.parents) if path.exists())
    if not nearest.is_dir():
        raise ConfigError(f"--root-dir {root}: {nearest} is not a directory")


def _check_socket(socket: Path, *, root: Path) -> None:
    if socket.exists() and not stat.S_ISSOCK(socket.stat().st_mode):
        raise ConfigError(f"socket (--klet-socket) {socket} exists and is not a socket: klet would have to remove it")
    if socket.parent != root and not socket.parent.is_dir():
        raise ConfigError(f"socket (--klet-socket) {socket}: there is no directory {socket.parent}: make it first")


def _reservation_problems(given: Settings, machine: MachineInfo) -> Iterator[str]:
    system, kube = effective_reservations(given.config)
    for name, capacity in machine_capacity(machine).items():
        reserved = system.get(name, ZERO) + kube.get(name, ZERO)
        if name == MEMORY:
            reserved += _kept_from_eviction(given, capacity)
        if reserved > capacity:
            yield (
                f'Resource "{name}" has a reservation of {reserved} but capacity of {capacity}. '
                "Expected capacity >= reservation."
            )


def _kept_from_eviction(given: Settings, capacity: Quantity) -> Quantity:
    if given.flags.experimental_allocatable_ignore_eviction:
        return ZERO
    for threshold in parse_thresholds(given.config):
        if threshold.signal is Signal.MEMORY_AVAILABLE and threshold.is_hard:
            amount = threshold.amount
            return amount.quantity or Quantity.of(int(capacity.value() * amount.share))
    return ZERO


@contextmanager
def _about(setting: str, *, advice: str) -> Iterator[None]:
    try:
        yield
    except KletError as error:
        raise ConfigError(f"{setting}: {error}: {advice}") from error
