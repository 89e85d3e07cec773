"""Where a `klet up` node keeps its files, and the names it uses on the host.

One state directory is one node. Everything that lives outside of the directory (bridge, cgroup, CNI network, ports) has
a name derived from it, so that several nodes share a machine without meeting.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

DEFAULT_STATE = Path("/var/lib/klet")
DEFAULT_RUN = Path("/run/klet")
SOCKET_PATH_LIMIT = 104
"""The most bytes that containerd allows for the path of a socket; the kernel's own limit is a little higher."""

KUBELET_PORT = 10250
HEALTHZ_PORT = 10248
FIRST_DERIVED_PORT = 20000
DERIVED_PORT_PAIRS = 6000
"""Pairs of ports from 20000 on: above the well-known ones, below the range the kernel hands out."""


class NodePaths(Struct, frozen=True):
    """The files of one node."""

    state: Path
    run: Path

    @property
    def agent_socket(self) -> Path:
        return self.state / "klet.sock"

    @property
    def record(self) -> Path:
        return self.state / "node.json"

    @property
    def applied(self) -> Path:
        return self.state / "applied.json"

    @property
    def manifests(self) -> Path:
        return self.state / "manifests"

    @property
    def configuration(self) -> Path:
        return self.state / "etc"

    @property
    def containerd_configuration(self) -> Path:
        return self.configuration / "containerd.toml"

    @property
    def cni_configuration(self) -> Path:
        return self.configuration / "cni"

    @property
    def kubelet_configuration(self) -> Path:
        return self.configuration / "kubelet.yaml"

    @property
    def klet_configuration(self) -> Path:
        return self.configuration / "klet.yaml"

    @property
    def registries(self) -> Path:
        """What containerd knows about registries: mirrors, certificates (certs.d). Its files are the user's."""
        return self.configuration / "certs.d"

    @property
    def pki(self) -> Path:
        """Keys and certificates: of the agent, of who may use its API, and of the authority of both."""
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def pod_logs(self) -> Path:
        return self.state / "pod-logs"

    @property
    def container_links(self) -> Path:
        """Where the agent links each container's log by its name."""
        return self.state / "containers"

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    @property
    def containerd_root(self) -> Path:
        return self.state / "containerd"

    @property
    def cni_data(self) -> Path:
        """Addresses that are given out; gone after a reboot, like the pods that hold them."""
        return self.run / "cni"

    @property
    def images(self) -> Path:
        return self.state / "images"

    @property
    def containerd_state(self) -> Path:
        return self.run / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def runc_root(self) -> Path:
        return self.run / "runc"

    @property
    def boot(self) -> Path:
        """The id of the boot that the run files are of."""
        return self.run / "boot"

    @property
    def services(self) -> Path:
        return self.run / "services.json"

    @property
    def pids(self) -> Path:
        return self.run / "pids"

    @property
    def supervisor_pid(self) -> Path:
        return self.pids / "supervisor"


class NodeNames(Struct, frozen=True):
    """What one node is called on the host."""

    tag: str
    """Empty for the default node; otherwise eight hexadecimal digits of the state directory."""
    bridge: str
    network: str
    cgroup: str
    port: int
    healthz_port: int


def node_paths(state: Path) -> NodePaths:
    """Return the paths. The default state directory has short-lived files under /run; any other keeps them itself."""
    return NodePaths(state=state, run=DEFAULT_RUN if state == DEFAULT_STATE else state / "run")


def node_names(state: Path) -> NodeNames:
    if state == DEFAULT_STATE:
        return NodeNames(
            tag="", bridge="klet0", network="klet", cgroup="/klet", port=KUBELET_PORT, healthz_port=HEALTHZ_PORT
        )
    tag = hashlib.sha256(str(state).encode()).hexdigest()[:8]
    port = FIRST_DERIVED_PORT + int(tag, 16) % DERIVED_PORT_PAIRS * 2
    return NodeNames(
        tag=tag,
        bridge=f"klet{tag}",
        network=f"klet-{tag}",
        cgroup=f"/klet-{tag}",
        port=port,
        healthz_port=port + 1,
    )


def state_directory_problem(state: Path) -> str | None:
    """Return why the directory cannot hold a node, or None when it can."""
    if not _is_line(str(state)):
        return (
            f"--state-dir {str(state)!r} has control characters, or bytes that are not UTF-8: "
            "configuration files and units cannot name it; give another directory"
        )
    paths = node_paths(state)
    # containerd puts a second socket beside its own, with this ending.
    longest = max(paths.agent_socket, Path(f"{paths.containerd_socket}.ttrpc"), key=lambda path: len(os.fsencode(path)))
    excess = len(os.fsencode(longest)) - SOCKET_PATH_LIMIT
    if excess > 0:
        return (
            f"--state-dir {state} is {excess} bytes too long: the path of a socket may have {SOCKET_PATH_LIMIT}, "
            f"and klet makes {longest}"
        )
    return None


def foreign_entries(paths: NodePaths, names: Iterable[str]) -> list[str]:
    """Return what lies in a state directory and is not klet's: a directory that holds such things is no node."""
    own = (
        *(paths.agent_socket, paths.record, paths.applied, paths.manifests, paths.configuration, paths.logs),
        *(paths.pod_logs, paths.container_links, paths.kubelet_root, paths.containerd_root, paths.images, paths.run),
        paths.pki,
    )
    known = {path.name for path in own} | {"lost+found"}
    return sorted(name for name in names if name not in known and _temporary_of(name) not in known)


def _is_line(text: str) -> bool:
    """Return whether a text can be written in a line of a file."""
    is_encodable = not any("\ud800" <= char <= "\udfff" for char in text)
    return is_encodable and text.splitlines() == [text] and not any(char < " " or char == "\x7f" for char in text)


def _temporary_of(name: str) -> str:
    """Return the file that a temporary one was to replace when the command that wrote it was killed."""
    return name.removeprefix(".").rpartition(".")[0] if name.startswith(".") else ""
