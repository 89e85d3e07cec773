"""Where upstream's programs are: those that scripts/upstream has built, or those of `$KLET_UPSTREAM_BIN`."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from klet.errors import KletError
from klet.version import KUBERNETES_VERSION

VERSION: Final = KUBERNETES_VERSION
RELEASE_VARIABLE: Final = "KLET_KUBERNETES_VERSION"
"""Names another release, for tests of klet with an older or newer control plane."""
_RELEASE: Final = re.compile(r"v1\.\d{1,3}\.\d{1,3}")
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KUBECTL: Final = "kubectl"
KUBELET: Final = "kubelet"
PROGRAMS: Final = (API_SERVER, CONTROLLERS, SCHEDULER, KUBECTL, KUBELET)
ETCD: Final = "etcd"
E2E_TEST: Final = "e2e.test"
GINKGO: Final = "ginkgo"
AGNHOST: Final = "agnhost"
NO_NEW_PRIVILEGES: Final = "nonewprivs"
SUITE: Final = (E2E_TEST, GINKGO, AGNHOST, NO_NEW_PRIVILEGES)
"""What scripts/conformance runs, and what runs in its containers."""
HOSTPATH_PLUGIN: Final = "hostpathplugin"
CSI: Final = (
    *(HOSTPATH_PLUGIN, "csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"),
    *("csi-node-driver-registrar", "livenessprobe", "csi-external-health-monitor-controller"),
)
"""What runs in the containers of the suite's CSI drivers, all of kubernetes-csi. The driver alone is built here: the
registry of Go modules has no release of node-driver-registrar, and of the others only such as need it."""
METRICS_SERVER: Final = "metrics-server"
EXTRA: Final = ("kubeadm", ETCD, METRICS_SERVER, HOSTPATH_PLUGIN, *SUITE)
"""Built when asked for by name. Debian's etcd does too, but is too old for lists that are streamed."""


class ProgramMissing(KletError):
    """A program of upstream's is not here; the message says which, and how to get it."""


def is_release(text: str) -> bool:
    """Return whether a text names a release, and can be a part of a path."""
    return _RELEASE.fullmatch(text) is not None


def chosen_release(environment: Mapping[str, str] = os.environ) -> str:
    """Return the release whose programs are built and run: the one that klet follows unless another is named."""
    release = environment.get(RELEASE_VARIABLE) or VERSION
    if not is_release(release):
        raise ProgramMissing(f"{RELEASE_VARIABLE} must be a release such as {VERSION}, not {release[:40]!r}")
    return release


def chosen_minor(environment: Mapping[str, str] = os.environ) -> int:
    """Return the minor version of that release: what an API server knows depends on it."""
    return int(chosen_release(environment).split(".")[1])


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory outside of every checkout, since building takes long."""
    home = environment.get("KLET_CACHE") or Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klet"
    return Path(home) / "upstream" / chosen_release(environment)


def program_directory(environment: Mapping[str, str] = os.environ) -> Path:
    given = environment.get("KLET_UPSTREAM_BIN")
    return Path(given) if given else cache_directory(environment) / "bin"


def missing_programs(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    directory = program_directory(environment)
    return tuple(name for name in names if not os.access(directory / name, os.X_OK))


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    if missing_programs((name,), environment):
        raise ProgramMissing(f"no {name} in {program_directory(environment)}: build it with scripts/upstream")
    return program_directory(environment) / name


def find_etcd() -> Path:
    """Return the one that was built, or the machine's."""
    found = str(program_directory() / ETCD) if not missing_programs((ETCD,)) else shutil.which(ETCD)
    if found is None:
        raise ProgramMissing("no etcd: install Debian's etcd-server, or build it with scripts/upstream etcd")
    return Path(found)


def why_impossible(*names: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return what a control plane with these programs lacks here, and how to get it; empty if nothing."""
    missing = missing_programs((API_SERVER, *names), environment)
    if missing:
        return describe_program(missing[0], environment)
    return (
        "" if shutil.which(ETCD) or not missing_programs((ETCD,), environment) else describe_program(ETCD, environment)
    )


def describe_program(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Say that a program is missing, and how to get it."""
    release = chosen_release(environment)
    command = "scripts/upstream" if release == VERSION else f"scripts/upstream --kubernetes-version {release}"
    build = f"run {command}" if name in PROGRAMS and release == VERSION else f"run {command} {name}"
    if name == ETCD:
        return f"no {name}: apt-get install etcd-server, or {build}"
    if given := environment.get("KLET_UPSTREAM_BIN"):
        return f"no {name} in KLET_UPSTREAM_BIN={given}: put it there, or unset the variable and {build}"
    return f"no {name}: {build}"
