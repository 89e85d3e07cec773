"""A newer containerd than the machine's, from a later Debian release: fetched once, installed nowhere.

The packages come from the machine's own Debian mirror, through an apt with lists, cache and status of its own, and are
unpacked below a cache directory. What needs a later C library than the machine's is bound to the one beside it.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from klet.errors import KletError

SUITE = "forky"
PACKAGES = ("containerd", "runc", "crun", "patchelf")
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun")
# Those that need a later C library. They start themselves again, so a loader in front of them would not do.
BOUND = ("runc", "crun")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATIENCE_SECONDS = 300


class NewerContainerdMissing(KletError):
    """It could not be had here; the message says why."""


def find_newer_containerd(cache: Path | None = None) -> Path:
    """The directory of its programs, ready to stand first in PATH; fetched if it is not there yet."""
    base = cache or Path(os.environ.get("KLET_CACHE") or Path.home() / ".cache" / "klet")
    root = base / f"containerd-{SUITE}"
    programs = root / "programs"
    if not programs.is_dir():
        if reason := _why_impossible():
            raise NewerContainerdMissing(reason)
        base.mkdir(parents=True, exist_ok=True)
        with _alone(base / "lock"):
            if not programs.is_dir():
                _fetch(root)
    return programs


def _why_impossible() -> str:
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two test runs may want it at once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(root: Path) -> None:
    # Beside its place, so that a half-filled directory is never taken for a whole one. Programs name their loader by
    # its path, so they are bound only where they stay.
    shutil.rmtree(root, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="apt-", dir=root.parent) as scratch:
        for archive in _download(Path(scratch)):
            _run("dpkg-deb", "--extract", str(archive), str(root))
    making = root / "programs.new"
    making.mkdir()
    for name in PROGRAMS:
        (making / name).symlink_to(_program(root, name))
    for name in BOUND:
        _bind(root, _program(root, name))
    making.rename(root / "programs")


def _download(scratch: Path) -> list[Path]:
    """The packages and all they need, as if nothing were installed."""
    for name in ("lists/partial", "cache/archives/partial", "state", "parts"):
        (scratch / name).mkdir(parents=True)
    (scratch / "status").touch()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (scratch / "sources.list").write_text(f"deb {signed}{find_mirror()} {SUITE} main\n")
    settings = {
        "Dir::State": "state",
        "Dir::State::Lists": "lists",
        "Dir::State::status": "status",
        "Dir::Cache": "cache",
        "Dir::Etc::sourcelist": "sources.list",
        "Dir::Etc::sourceparts": "parts",
        "Dir::Etc::preferences": "none",
        "Dir::Etc::preferencesparts": "parts",
    }
    lines = [f'{name} "{scratch / value}";' for name, value in settings.items()]
    lines += ['APT::Sandbox::User "root";', 'Acquire::Languages "none";', 'Acquire::Retries "2";']
    lines += ['APT::Update::Error-Mode "any";']
    # Hooks that look after the machine's own lists have nothing to do here, and neither have its catalogues.
    lines += [
        "#clear APT::Update::Post-Invoke-Success;",
        "#clear APT::Update::Post-Invoke;",
        "#clear DPkg::Post-Invoke;",
    ]
    lines += ['Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";']
    (scratch / "apt.conf").write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "APT_CONFIG": str(scratch / "apt.conf"), "LC_ALL": "C"}
    _run("apt-get", "update", "-qq", environment=environment)
    options = ("-qq", "-y", "--no-install-recommends", "--download-only")
    _run("apt-get", "install", *options, *PACKAGES, environment=environment)
    return sorted((scratch / "cache" / "archives").glob("*.deb"))


def find_mirror() -> str:
    """Where the machine gets its own release from; later releases are there too."""
    listed = _run("apt-get", "update", "--print-uris", environment={**os.environ, "LC_ALL": "C"})
    return choose_mirror(listed, codename=_codename(Path("/etc/os-release").read_text()))


def choose_mirror(listed: str, *, codename: str) -> str:
    """Among what `apt-get update --print-uris` lists, the archive that holds a release."""
    end = f"/dists/{codename}/InRelease"
    for line in listed.splitlines():
        address = line.split("'")[1] if line.startswith("'") else ""
        if codename and address.endswith(end):
            return address.removesuffix(end)
    raise NewerContainerdMissing(f'no Debian archive with the release "{codename}" in the sources of apt')


def _codename(os_release: str) -> str:
    pairs = (line.partition("=") for line in os_release.splitlines())
    return {name: value.strip('"') for name, _, value in pairs}.get("VERSION_CODENAME", "")


def _program(root: Path, name: str) -> Path:
    found = next((path for path in (root / "usr/bin" / name, root / "usr/sbin" / name) if path.exists()), None)
    if found is None:
        raise NewerContainerdMissing(f"the packages of {SUITE} hold no {name}")
    return found


def _bind(root: Path, program: Path) -> None:
    """Make a program use the C library beside it."""
    loaders = sorted((root / "usr/lib").glob("*-linux-gnu/ld-linux-*.so.*"))
    if not loaders:
        raise NewerContainerdMissing(f"the packages of {SUITE} hold no loader of programs")
    loader, libraries = str(loaders[0]), str(loaders[0].parent)
    patchelf = (loader, "--library-path", libraries, str(root / "usr/bin/patchelf"))
    _run(*patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, str(program))


def _run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NewerContainerdMissing(f"{command[0]} did not end within {PATIENCE_SECONDS} s") from error
    if done.returncode:
        raise NewerContainerdMissing(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def main() -> int:
    """Print the directory of the programs."""
    try:
        found = find_newer_containerd()
    except NewerContainerdMissing as error:
        sys.stderr.write(f"newer-containerd: {error}\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
