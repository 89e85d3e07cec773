"""CRIU, which runtimes make checkpoints with, from a later Debian release: fetched once, installed nowhere."""

import shutil
from pathlib import Path

from klet.testing.debian_packages import alone, find_cache, unpack_packages
from klet.testing.newer_containerd import SUITE, bind_program

PACKAGES = ("criu", "patchelf")


def find_criu(cache: Path | None = None) -> Path:
    """Return the directory of the program, ready to stand first in PATH; fetched if it is not there yet."""
    base = cache or find_cache()
    root = base / f"criu-{SUITE}"
    programs = root / "programs"
    if not programs.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with alone(base / "lock"):
            if not programs.is_dir():
                _fetch(root)
    return programs


def _fetch(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    unpack_packages(root, *PACKAGES, suite=SUITE, with_needs=True)
    program = root / "usr/sbin/criu"
    bind_program(root, program)
    making = root / "programs.new"
    making.mkdir()
    (making / "criu").symlink_to(program)
    making.rename(root / "programs")
