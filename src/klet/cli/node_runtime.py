"""Where the runtime of a node is, for commands that work with it directly."""

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.cli.client import AgentClient, AgentError, AgentUnavailable
from klet.cli.node.node import LocalNode
from klet.errors import KletError

_EXAMPLE: Final = "unix:///run/containerd/containerd.sock"


class NodeRuntime(Struct, frozen=True, kw_only=True):
    """The sockets of a node's runtime, and where its agent keeps registry logins."""

    endpoint: str
    image_endpoint: str = ""
    logins: Path
    """The root directory of the agent."""

    @property
    def images(self) -> str:
        return self.image_endpoint or self.endpoint

    @property
    def socket(self) -> Path:
        return Path(self.images.removeprefix("unix://").removeprefix("unix:"))


def find_runtime(node: LocalNode, client: AgentClient, *, endpoint: str) -> NodeRuntime:
    """Return the one that is given, that of `klet up`, or what the agent says. Raises KletError."""
    scheme, separator, _ = endpoint.partition("://")
    if separator and scheme != "unix":
        raise KletError(f"--runtime-endpoint {endpoint}: it has to be a Unix socket, as in {_EXAMPLE}")
    runtime = _choose(node, client, endpoint=endpoint)
    if not os.access(runtime.socket, os.W_OK):
        there = runtime.socket.exists()
        advice = "give --runtime-endpoint that of a runtime" if endpoint else "`klet up` starts the node's runtime"
        what = "belongs to root: use sudo" if there else f"is not there: {advice}"
        raise KletError(f"the socket {runtime.socket} {what}")
    return runtime


def _choose(node: LocalNode, client: AgentClient, *, endpoint: str) -> NodeRuntime:
    is_own = node.paths.record.exists()
    logins = node.paths.kubelet_root if is_own else node.paths.state
    if endpoint:
        return NodeRuntime(endpoint=endpoint, logins=logins)
    if is_own:
        return NodeRuntime(endpoint=f"unix://{node.paths.containerd_socket}", logins=logins)
    try:
        sockets = client.runtime_sockets()
    except (AgentUnavailable, AgentError) as error:
        message = f"which runtime the images are for is not known ({error}); or name its socket with --runtime-endpoint"
        raise KletError(message) from error
    return NodeRuntime(
        endpoint=sockets.container_runtime_endpoint, image_endpoint=sockets.image_service_endpoint, logins=logins
    )
