"""Cgroup names and their two spellings: cgroupfs paths and systemd slices. Pure."""

import posixpath
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from klet.host.errors import CgroupNameError

SLICE = ".slice"
ROOT_SLICE = "-.slice"
_FORBIDDEN = frozenset("/_\0\n")


class CgroupDriver(StrEnum):
    """Who makes the cgroups."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class CgroupName(Struct, frozen=True):
    """The name of a cgroup, the same for both drivers: `["kubepods" "burstable"]`."""

    components: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for component in self.components:
            if component in {".", ".."} or not _FORBIDDEN.isdisjoint(component):
                raise CgroupNameError(f"invalid character in component [{_go_quote(component)}] of CgroupName")

    def child(self, *components: str) -> "CgroupName":
        return CgroupName((*self.components, *components))

    @property
    def parent(self) -> "CgroupName":
        return CgroupName(self.components[:-1])

    @property
    def last(self) -> str:
        return self.components[-1] if self.components else ""

    def quoted(self) -> str:
        """Return Go's %q of the component list, which upstream's messages hold."""
        return f"[{' '.join(_go_quote(component) for component in self.components)}]"

    def __str__(self) -> str:
        """Return Go's %v of the component list, which upstream's messages hold."""
        return f"[{' '.join(self.components)}]"


ROOT = CgroupName()


def cgroup_path(name: CgroupName, driver: CgroupDriver) -> str:
    """Return the path below the cgroup mount; also the `cgroup_parent` sent over the CRI, for both drivers."""
    match driver:
        case CgroupDriver.CGROUPFS:
            return cgroupfs_path(name)
        case CgroupDriver.SYSTEMD:
            return systemd_path(name)
        case _:
            assert_never(driver)


def parse_cgroup(path: str, driver: CgroupDriver) -> CgroupName:
    """Return the driver's own reading of a path."""
    match driver:
        case CgroupDriver.CGROUPFS:
            return parse_cgroupfs(path)
        case CgroupDriver.SYSTEMD:
            return parse_systemd(path)
        case _:
            assert_never(driver)


def cgroupfs_path(name: CgroupName) -> str:
    return "/" + "/".join(component for component in name.components if component)


def literal_path(path: str) -> str:
    """Return a path of the configuration that is taken as it is, whatever the driver."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


def parse_cgroupfs(path: str) -> CgroupName:
    """Split a path. A trailing slash makes an empty component, as upstream has it for `--cgroup-root`."""
    text = path.removeprefix("/")
    return CgroupName(tuple(text.split("/"))) if text else ROOT


def systemd_path(name: CgroupName) -> str:
    """Return the nested slices of a name."""
    if name.components in {(), ("",)}:
        return "/"
    return expand_slice("-".join(component.replace("-", "_") for component in name.components) + SLICE)


def parse_systemd(path: str) -> CgroupName:
    """Return the name behind the last slice of a path; its parents follow from it."""
    base = posixpath.basename(path.rstrip("/"))
    if base in {"", ROOT_SLICE}:
        return ROOT
    return CgroupName(tuple(part.replace("_", "-") for part in base.removesuffix(SLICE).split("-")))


def expand_slice(unit: str) -> str:
    """Return the path of a slice by systemd's rule: `a-b.slice` lies in `/a.slice/a-b.slice`."""
    if unit == ROOT_SLICE:
        return "/"
    parts = unit.removesuffix(SLICE).split("-")
    if not unit.endswith(SLICE) or "/" in unit or not all(parts):
        raise CgroupNameError(f"invalid slice name {unit!r}: empty component, slash or no {SLICE} at the end")
    return "".join(f"/{'-'.join(parts[: count + 1])}{SLICE}" for count in range(len(parts)))


def slice_unit(path: str) -> tuple[str, str]:
    """Return the unit of an expanded slice path, and its parent unit."""
    parts = [part for part in path.split("/") if part]
    if not parts:
        raise CgroupNameError("the root cgroup is no unit of its own")
    return parts[-1], parts[-2] if len(parts) > 1 else ROOT_SLICE


def _go_quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
