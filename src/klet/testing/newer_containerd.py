"""A newer containerd than the machine's, from a later Debian release: fetched once, installed nowhere.

The packages are unpacked below a cache directory. What needs a later C library than the machine's is bound to the one
beside it.
"""

import shutil
import sys
from pathlib import Path

from klet.testing.debian_packages import PackagesMissing, alone, find_cache, run_tool, unpack_packages

SUITE = "forky"
PACKAGES = ("containerd", "runc", "crun", "patchelf")
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun")
# Those that need a later C library. They start themselves again, so a loader in front of them would not do.
BOUND = ("runc", "crun")


def find_newer_containerd(cache: Path | None = None) -> Path:
    """Return the directory of its programs, ready to stand first in PATH; fetched if it is not there yet."""
    base = cache or find_cache()
    root = base / f"containerd-{SUITE}"
    programs = root / "programs"
    if not programs.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with alone(base / "lock"):
            if not programs.is_dir():
                _fetch(root)
    return programs


def _fetch(root: Path) -> None:
    # Beside its place, so that a half-filled directory is never taken for a whole one. Programs name their loader by
    # its path, so they are bound only where they stay.
    shutil.rmtree(root, ignore_errors=True)
    unpack_packages(root, *PACKAGES, suite=SUITE, with_needs=True)
    making = root / "programs.new"
    making.mkdir()
    for name in PROGRAMS:
        (making / name).symlink_to(_program(root, name))
    for name in BOUND:
        bind_program(root, _program(root, name))
    making.rename(root / "programs")


def _program(root: Path, name: str) -> Path:
    found = next((path for path in (root / "usr/bin" / name, root / "usr/sbin" / name) if path.exists()), None)
    if found is None:
        raise PackagesMissing(f"the packages of {SUITE} hold no {name}")
    return found


def bind_program(root: Path, program: Path) -> None:
    """Make a program use the C library beside it."""
    loaders = sorted((root / "usr/lib").glob("*-linux-gnu/ld-linux-*.so.*"))
    if not loaders:
        raise PackagesMissing(f"the packages of {SUITE} hold no loader of programs")
    loader, libraries = str(loaders[0]), str(loaders[0].parent)
    patchelf = (loader, "--library-path", libraries, str(root / "usr/bin/patchelf"))
    run_tool(*patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, str(program))


def main() -> int:
    """Print the directory of the programs."""
    try:
        found = find_newer_containerd()
    except PackagesMissing as error:
        sys.stderr.write(f"newer-containerd: {error}\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
