"""Packages of the machine's own Debian mirror for tests: unpacked below a directory, installed nowhere.

They come through an apt with lists, cache and status of its own, so that the machine's apt need not know them.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from klet.errors import KletError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATIENCE_SECONDS = 300


class PackagesMissing(KletError):
    """They could not be had here; the message says why."""


def find_cache() -> Path:
    """Return where what was fetched is kept for the next time."""
    return Path(os.environ.get("KLET_CACHE") or Path.home() / ".cache" / "klet")


def unpack_packages(root: Path, *packages: str, suite: str = "", with_needs: bool) -> None:
    """Fetch packages of a release, the machine's own unless one is named, and unpack them; raises PackagesMissing."""
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if missing:
        raise PackagesMissing(f"not installed: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="apt-", dir=root.parent) as scratch:
        for archive in _download(Path(scratch), suite, packages, with_needs=with_needs):
            run_tool("dpkg-deb", "--extract", str(archive), str(root))


def fetch_source(directory: Path, package: str, *, suite: str) -> Path:
    """Fetch the source of a package of a release; return upstream's own archive of it. Raises PackagesMissing."""
    if not shutil.which("apt-get"):
        raise PackagesMissing("not installed: apt-get")
    with tempfile.TemporaryDirectory(prefix="apt-", dir=directory) as scratch:
        environment = _set_up_apt(Path(scratch), suite, kind="deb-src")
        options = ("-qq", "--download-only", "--only-source")
        run_tool("apt-get", "source", *options, package, environment=environment, directory=directory)
    found = sorted(directory.glob(f"{package}_*.orig.tar.*[!c]"))
    if not found:
        raise PackagesMissing(f"the source of {package} in {suite} has no archive of upstream's")
    return found[0]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock: two test runs may want it at once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(scratch: Path, suite: str, packages: Sequence[str], *, with_needs: bool) -> list[Path]:
    """Return the packages, and all they need as if nothing were installed, if that is wanted.

    Without a release they come from the machine's own sources, with security updates: its lists name these versions.
    """
    environment = _set_up_apt(scratch, suite or own_suite()) if suite or with_needs else None
    if not with_needs:
        run_tool("apt-get", "download", "-qq", *packages, environment=environment, directory=scratch)
        return sorted(scratch.glob("*.deb"))
    options = ("-qq", "-y", "--no-install-recommends", "--download-only")
    run_tool("apt-get", "install", *options, *packages, environment=environment)
    return sorted((scratch / "cache" / "archives").glob("*.deb"))


def _set_up_apt(scratch: Path, suite: str, *, kind: str = "deb") -> dict[str, str]:
    """Make an apt of its own that knows one release; return its environment."""
    for name in ("lists/partial", "cache/archives/partial", "state", "parts"):
        (scratch / name).mkdir(parents=True)
    (scratch / "status").touch()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (scratch / "sources.list").write_text(f"{kind} {signed}{find_mirror()} {suite} main\n")
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
    run_tool("apt-get", "update", "-qq", environment=environment)
    return environment


def find_mirror() -> str:
    """Return where the machine gets its own release from; later releases are there too."""
    listed = run_tool("apt-get", "update", "--print-uris", environment={**os.environ, "LC_ALL": "C"})
    return choose_mirror(listed, codename=own_suite())


def choose_mirror(listed: str, *, codename: str) -> str:
    """Return the archive that holds a release, among what `apt-get update --print-uris` lists."""
    end = f"/dists/{codename}/InRelease"
    for line in listed.splitlines():
        address = line.split("'")[1] if line.startswith("'") else ""
        if codename and address.endswith(end):
            return address.removesuffix(end)
    raise PackagesMissing(f'no Debian archive with the release "{codename}" in the sources of apt')


def own_suite() -> str:
    """Return the code name of the machine's own release; empty if it has none."""
    pairs = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {name: value.strip('"') for name, _, value in pairs}.get("VERSION_CODENAME", "")


def run_tool(
    *command: str,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    patience: int = PATIENCE_SECONDS,
) -> str:
    """Return what a program prints; raises PackagesMissing if it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=directory,
            timeout=patience,
        )
    except subprocess.TimeoutExpired as error:
        raise PackagesMissing(f"{command[0]} did not end within {patience} s") from error
    if done.returncode:
        raise PackagesMissing(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
