"""CRIU, which runtimes make checkpoints with, from a later Debian release."""

from pathlib import Path
from typing import Final

from klet.testing.later_programs import LaterPrograms, find_later_programs

_CRIU: Final = LaterPrograms(name="criu", packages=("criu",), programs=("criu",), bound=("criu",))


def find_criu(cache: Path | None = None) -> Path:
    """Return the directory of the program, ready to stand first in PATH; fetched if it is not there yet."""
    return find_later_programs(_CRIU, cache)
