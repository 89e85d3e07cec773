"""A newer containerd than the machine's, from a later Debian release."""

import sys
from pathlib import Path
from typing import Final

from klet.testing.debian_packages import PackagesMissing
from klet.testing.later_programs import LaterPrograms, find_later_programs

_CONTAINERD: Final = LaterPrograms(
    name="containerd",
    packages=("containerd", "runc", "crun"),
    programs=("containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun"),
    bound=("runc", "crun"),
)


def find_newer_containerd(cache: Path | None = None) -> Path:
    """Return the directory of its programs, ready to stand first in PATH; fetched if it is not there yet."""
    return find_later_programs(_CONTAINERD, cache)


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
