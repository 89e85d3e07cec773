"""A small userland for the suite's images, of a later Debian release: made once, installed nowhere.

busybox is built from the source of the release that upstream's image has: Debian's own drops environment variables
whose names have dashes, and its nc knows no UDP. bash and curl are Debian's, with their libraries.
"""

import lzma
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from klet.host.images import ImageEntry, directory, file, symlink
from klet.testing.debian_packages import PackagesMissing, alone, fetch_source, find_cache, run_tool, unpack_packages

SUITE: Final = "trixie"
PACKAGES: Final = ("bash", "curl")
LINKED: Final = ("usr/bin/bash", "usr/bin/curl")
BUSYBOX: Final = "busybox"
_LISTED: Final = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_DIRECTORIES: Final = (
    *("bin", "dev", "etc", "home", "lib", "lib64", "proc", "sys", "usr", "usr/bin", "usr/local", "usr/local/bin"),
    *("usr/sbin", "sbin", "var", "var/log", "var/www"),
)
_USERS: Final = """\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
"""
_GROUPS: Final = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n"
TOOLS: Final = ("gcc", "make")
PATIENCE_SECONDS: Final = 3600
"""It takes one minute; on a machine with other things to do, many."""
_SETTINGS: Final = {"CONFIG_STATIC": "y", "CONFIG_TC": "n"}
"""Without libraries, so that it runs in any image; without tc, which does not compile with recent kernel headers."""


class Userland(Struct, frozen=True):
    """Where the packages are unpacked and busybox is built, and what is in them."""

    root: Path
    applets: Sequence[str]
    libraries: Mapping[str, Sequence[Path]]
    """The libraries of each linked program; the loader is one of them."""
    loader: str
    """The path that programs name."""

    def busybox_layer(self, *, users: str = "", groups: str = "") -> list[ImageEntry]:
        """Return busybox under all of its names, with further lines for the lists of users and groups."""
        return [
            *(directory(path) for path in _DIRECTORIES),
            directory("root", 0o700),
            directory("tmp", 0o1777),
            file("bin/busybox", (self.root / BUSYBOX).read_bytes(), 0o755),
            *(symlink(f"bin/{applet}", "busybox") for applet in sorted(set(self.applets) - {"busybox"})),
            symlink("usr/bin/env", "/bin/env"),
            file("etc/passwd", _USERS + users),
            file("etc/group", _GROUPS + groups),
            file("etc/shadow", "root:*:::::::\n", 0o640),
        ]

    def linked_layer(self) -> list[ImageEntry]:
        """Return bash and curl with their libraries."""
        found = {path for paths in self.libraries.values() for path in paths}
        folders = sorted({path.parent.name for path in found})
        return [
            *(directory(f"lib/{folder}") for folder in folders),
            *(file(_place(path), path.read_bytes(), 0o755) for path in sorted(found)),
            *(
                symlink(self.loader.lstrip("/"), f"/{_place(path)}")
                for path in found
                if path.name == Path(self.loader).name
            ),
            *(file(path, (self.root / path).read_bytes(), 0o755) for path in LINKED),
            symlink("bin/bash", "/usr/bin/bash"),
        ]


def find_userland(cache: Path | None = None) -> Userland:
    """Return the userland, fetched if it is not there yet; raises PackagesMissing."""
    root = userland_root(cache)
    if missing_files(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        with alone(root.parent / "lock"):
            if missing_files(root):
                _fetch(root)
    loader, libraries = _find_loader(root), {}
    for path in LINKED:
        said = run_tool(str(loader), "--library-path", str(loader.parent), "--list", str(root / path))
        libraries[path] = [*parse_libraries(said, root), loader]
    applets = run_tool(str(root / BUSYBOX), "--list").split()
    return Userland(root=root, applets=applets, libraries=libraries, loader=loader_path(loader.name))


def userland_root(cache: Path | None = None) -> Path:
    return (cache or find_cache()) / f"conformance-{SUITE}"


def missing_files(root: Path) -> list[str]:
    """Return what a root lacks: everything, or what an older klet did not fetch."""
    return [path for path in (BUSYBOX, *LINKED) if not (root / path).is_file()]


def parse_libraries(listed: str, root: Path) -> list[Path]:
    """Return the libraries below a root that a loader lists; one of elsewhere would not be in the image."""
    return sorted({Path(path) for path in _LISTED.findall(listed) if Path(path).is_relative_to(root)})


def loader_path(name: str) -> str:
    """Return where programs look for the loader: the ABI of each machine says it."""
    return f"/lib64/{name}" if "x86-64" in name else f"/lib/{name}"


def _place(library: Path) -> str:
    return str(PurePosixPath("lib") / library.parent.name / library.name)


def _fetch(root: Path) -> None:
    # Beside its place, so that a half-filled directory is never taken for a whole one.
    making = root.with_name(f"{root.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    unpack_packages(making, *PACKAGES, suite=SUITE, with_needs=True)
    build_busybox(making / BUSYBOX, suite=SUITE)
    if missing := missing_files(making):
        raise PackagesMissing(f"the packages of {SUITE} hold no {', '.join(missing)}")
    shutil.rmtree(root, ignore_errors=True)
    making.rename(root)


def _find_loader(root: Path) -> Path:
    found = sorted((root / "usr/lib").glob("*-linux-gnu/ld-linux-*.so.*"))
    if not found:
        raise PackagesMissing(f"the packages of {SUITE} hold no loader of programs")
    return found[0]


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
