"""Builds busybox as its makers configure it, from the source in Debian's archive."""

import lzma
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from klet.testing.debian_packages import PackagesMissing, fetch_source, run_tool

TOOLS: Final = ("gcc", "make")
PATIENCE_SECONDS: Final = 3600
"""It takes one minute; on a machine with other things to do, many."""
_SETTINGS: Final = {"CONFIG_STATIC": "y", "CONFIG_TC": "n"}
"""Without libraries, so that it runs in any image; without tc, which does not compile with recent kernel headers."""


def build_busybox(target: Path, *, suite: str) -> None:
    """Fetch, build and put the program in place; raises PackagesMissing."""
    missing = [name for name in TOOLS if not shutil.which(name)]
    if missing:
        raise PackagesMissing(f"no {' and no '.join(missing)} to build busybox: apt-get install gcc libc6-dev make")
    with tempfile.TemporaryDirectory(prefix="busybox-", dir=target.parent) as scratch:
        archive = fetch_source(Path(scratch), "busybox", suite=suite)
        source = _unpack(archive, Path(scratch))
        run_tool("make", "defconfig", directory=source)
        config = source / ".config"
        config.write_text(change_settings(config.read_text(), _SETTINGS))
        run_tool("make", f"-j{os.cpu_count() or 1}", "busybox", directory=source, patience=PATIENCE_SECONDS)
        shutil.copy2(source / "busybox", target)


def change_settings(config: str, settings: dict[str, str]) -> str:
    """Return a .config with other values for settings that it has."""
    lines = []
    for line in config.splitlines():
        name = line.removeprefix("# ").partition("=")[0].partition(" ")[0]
        lines.append(f"{name}={settings[name]}" if name in settings else line)
    return "\n".join(lines) + "\n"


def _unpack(archive: Path, directory: Path) -> Path:
    """Return the one directory in an archive of sources."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
    except (OSError, tarfile.TarError, lzma.LZMAError) as error:
        raise PackagesMissing(f"{archive.name}: {error}") from error
    found = [path for path in directory.iterdir() if path.is_dir() and (path / "Makefile").is_file()]
    if len(found) != 1:
        raise PackagesMissing(f"{archive.name} holds {len(found)} directories with a Makefile")
    return found[0]
