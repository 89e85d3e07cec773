"""Programs of a later Debian release than the machine's: fetched once, installed nowhere.

The packages are unpacked below a cache directory. What needs a later C library than the machine's is bound to the one
beside it.
"""

import shutil
from pathlib import Path

from msgspec import Struct

from klet.testing.debian_packages import PackagesMissing, alone, find_cache, run_tool, unpack_packages

SUITE = "forky"
_PATCHELF = "patchelf"
_PLACES = ("usr/bin", "usr/sbin")


class LaterPrograms(Struct, frozen=True, kw_only=True):
    """Programs that are fetched together."""

    name: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    bound: tuple[str, ...]
    """Those that need a later C library. They start themselves again, so a loader in front of them would not do."""


def find_later_programs(wanted: LaterPrograms, cache: Path | None = None) -> Path:
    """Return the directory of the programs, ready to stand first in PATH; fetched if it is not there yet."""
    base = cache or find_cache()
    root = base / f"{wanted.name}-{SUITE}"
    programs = root / "programs"
    if not programs.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with alone(base / "lock"):
            if not programs.is_dir():
                _fetch(wanted, root)
    return programs


def _fetch(wanted: LaterPrograms, root: Path) -> None:
    # Beside its place, so that a half-filled directory is never taken for a whole one. Programs name their loader by
    # its path, so they are bound only where they stay.
    shutil.rmtree(root, ignore_errors=True)
    unpack_packages(root, *wanted.packages, _PATCHELF, suite=SUITE, with_needs=True)
    making = root / "programs.new"
    making.mkdir()
    for name in wanted.programs:
        (making / name).symlink_to(_program(root, name))
    for name in wanted.bound:
        _bind(root, _program(root, name))
    making.rename(root / "programs")


def _program(root: Path, name: str) -> Path:
    found = next((path for place in _PLACES if (path := root / place / name).exists()), None)
    if found is None:
        raise PackagesMissing(f"the packages of {SUITE} hold no {name}")
    return found


def _bind(root: Path, program: Path) -> None:
    """Make a program use the C library beside it."""
    loaders = sorted((root / "usr/lib").glob("*-linux-gnu/ld-linux-*.so.*"))
    if not loaders:
        raise PackagesMissing(f"the packages of {SUITE} hold no loader of programs")
    loader, libraries = str(loaders[0]), str(loaders[0].parent)
    patchelf = (loader, "--library-path", libraries, str(_program(root, _PATCHELF)))
    run_tool(*patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, str(program))
