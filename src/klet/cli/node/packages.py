"""Which Debian packages a node needs, which are missing, and how to get them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap", "bandwidth")

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the programs of a node are, also when the user's own PATH leaves out the system directories."""


class PackageRequirement(Struct, frozen=True):
    """A Debian package, and the programs of it that a node calls."""

    package: str
    programs: tuple[str, ...]


REQUIREMENTS = (
    PackageRequirement("containerd", ("containerd", "containerd-shim-runc-v2", "ctr")),
    PackageRequirement("runc", ("runc",)),
    PackageRequirement("containernetworking-plugins", CNI_PLUGINS),
    PackageRequirement("busybox-static", ("busybox",)),
    PackageRequirement("iptables", ("iptables",)),
)


class Ready(Struct, frozen=True):
    """Everything is there."""


class Install(Struct, frozen=True):
    """These packages are to be installed."""

    packages: tuple[str, ...]


class Missing(Struct, frozen=True):
    """These packages are missing, and klet may not install them."""

    packages: tuple[str, ...]
    reason: str


PackagePlan = Ready | Install | Missing


def plan_packages(found: Mapping[str, Path | None], *, may_install: bool, has_apt: bool, is_root: bool) -> PackagePlan:
    """Say what to do about the programs that were not found."""
    missing = tuple(
        requirement.package
        for requirement in REQUIREMENTS
        if any(found.get(program) is None for program in requirement.programs)
    )
    if not missing:
        return Ready()
    if not may_install:
        return Missing(missing, "--no-install was given")
    if not is_root:
        return Missing(missing, "only root may install packages")
    if not has_apt:
        return Missing(missing, "there is no apt-get here; install what provides the same programs")
    return Install(missing)


def find_programs(which: Callable[[str], Path | None], has_plugin: Callable[[Path], bool]) -> dict[str, Path | None]:
    """Return where each needed program is; CNI plugins are looked for in their own directories."""
    found: dict[str, Path | None] = {}
    directory = choose_cni_directory(has_plugin)
    for requirement in REQUIREMENTS:
        for program in requirement.programs:
            if program in CNI_PLUGINS:
                found[program] = directory / program if directory else None
            else:
                found[program] = which(program)
    return found


def choose_cni_directory(has_plugin: Callable[[Path], bool]) -> Path | None:
    """Return the first directory that holds every plugin; half a set is no use."""
    return next(
        (directory for directory in CNI_DIRECTORIES if all(has_plugin(directory / name) for name in CNI_PLUGINS)), None
    )


def install_commands(packages: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return (
        ("apt-get", "update", "-qq"),
        ("apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages),
    )
