"""Sends requests to the agent over its Unix socket: HTTP with the standard library, which is fast to import."""

import contextlib
import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

from klet.api import klet_v1, klet_v1_fit, klet_v1_images, klet_v1_topology
from klet.api.codec import DecodeError, decode
from klet.api.klet_v1 import Explanation, NodeExplanation, PodListing, PullEntry, PullListing, RecordedPods, Why
from klet.api.klet_v1_fit import FitAnswer
from klet.api.klet_v1_images import ImageGcPreview, NodeImageListing
from klet.api.klet_v1_topology import MachineTopology
from klet.api.pod import Pod
from klet.errors import KletError
from klet.version import __version__

T = TypeVar("T", bound=Struct)

CALL_TIMEOUT = 10.0
CONFIGURATION = "/configz"


class AgentError(KletError):
    """The agent answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RuntimeSockets(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where an agent reaches its runtime, in the words of KubeletConfiguration."""

    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""


class ShownConfiguration(Struct, frozen=True):
    """`/configz`, as much of it as commands need."""

    kubeletconfig: RuntimeSockets = RuntimeSockets()


class AgentUnavailable(KletError):
    """No agent answers on the socket."""


class OtherVersion(KletError):
    """The agent answers in a form that this command does not know."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the agent's answer to {path} is not one that klet {__version__} reads ({reason}): "
            "agent and command are of different versions; restart the agent with this one, or use the klet it came with"
        )


class AgentClient:
    """The calls that commands make. Each uses a connection of its own."""

    def __init__(self, *, socket_path: Path, advise: Callable[[], str | None]) -> None:
        self._socket_path = socket_path
        self._advise = advise
        """Returns what to do when no agent answers, if something starts it again when it has ended."""

    def is_healthy(self) -> bool:
        try:
            return self._get("/healthz").strip() == b"ok"
        except (AgentUnavailable, AgentError):
            return False

    def pods(self) -> tuple[Pod, ...]:
        return self._read(PodListing, "/pods").items or ()

    def all_pods(self) -> tuple[Pod, ...]:
        """Return all pods, also removed ones that are still terminating."""
        return self.list_pods().items or ()

    def list_pods(self) -> PodListing:
        """Return all pods, in the list that the agent sends."""
        return self._read(PodListing, klet_v1.PODS)

    def explain(self, namespace: str, name: str) -> Explanation:
        """Return the explanation of a pod. Raises AgentError with the status 404 if nothing is known of it."""
        path = f"{klet_v1.EXPLAIN}/{quote(namespace)}/{quote(name)}"
        return _decode(Explanation, path, self._get(path))

    def explain_node(self) -> NodeExplanation:
        return self._read(NodeExplanation, klet_v1.NODE)

    def why(self, namespace: str, name: str) -> tuple[Why, ...]:
        """Return what the agent names as the causes of how a pod is; the first explains most."""
        return self.explain(namespace, name).why

    def recorded_pods(self) -> RecordedPods:
        """Return the pods that there are records about, also those that are gone."""
        return self._read(RecordedPods, klet_v1.EXPLAIN)

    def pulls(self) -> tuple[PullEntry, ...]:
        """Return the images that are being pulled. An agent that is older than this command has nothing to say."""
        try:
            return _decode(PullListing, klet_v1.PULLS, self._get(klet_v1.PULLS)).pulls
        except AgentError as error:
            if error.status != http.client.NOT_FOUND:
                raise
            return ()

    def images(self) -> NodeImageListing:
        """Return the images of the runtime, and who uses them."""
        return self._read(NodeImageListing, klet_v1_images.IMAGES)

    def topology(self) -> MachineTopology:
        """Return the machine, and who has what of it."""
        return self._read(MachineTopology, klet_v1_topology.TOPOLOGY)

    def preview_collection(self) -> ImageGcPreview:
        """Return what image garbage collection would do now."""
        return self._read(ImageGcPreview, klet_v1_images.IMAGE_GC)

    def fit(self, manifest: bytes, *, source: str = "") -> FitAnswer:
        """Return whether the pod of a manifest would be admitted now. Raises AgentError with what is wrong with it."""
        path = f"{klet_v1_fit.FIT}?{urlencode({klet_v1_fit.SOURCE_QUERY: source})}"
        with _known_path(klet_v1_fit.FIT):
            return _decode(FitAnswer, klet_v1_fit.FIT, self._send(path, manifest))

    def runtime_sockets(self) -> RuntimeSockets:
        """Return where the agent reaches its runtime."""
        return self._read(ShownConfiguration, CONFIGURATION).kubeletconfig

    def logs(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield pieces of a container's log as they arrive."""
        path = f"/containerLogs/{quote(namespace)}/{quote(pod)}/{quote(container)}"
        with self.open(path, query) as stream:
            # read1 returns what is there; read would wait for a full buffer while following.
            while piece := stream.read1():
                yield piece

    def open(self, path: str, query: Mapping[str, str]) -> "AgentStream":
        """Return an answer without an end of its own."""
        connection = self._connect(timeout=None)
        return AgentStream(connection=connection, response=self._ask(connection, path, query))

    def follow_journal(self, query: Mapping[str, str]) -> "AgentStream":
        """Return the agent's decisions, one on each line."""
        with _known_path(klet_v1.JOURNAL):
            return self.open(klet_v1.JOURNAL, {"follow": "true", **query})

    def _read(self, cls: type[T], path: str) -> T:
        """Return the answer of a path that every agent of this version has."""
        with _known_path(path):
            return _decode(cls, path, self._get(path))

    def _get(self, path: str) -> bytes:
        return self._send(path, None)

    def _send(self, path: str, body: bytes | None) -> bytes:
        """Return the answer to a GET, or with a body to a POST."""
        connection = self._connect(timeout=CALL_TIMEOUT)
        try:
            return self._ask(connection, path, {}, body).read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(str(error)) from error
        finally:
            connection.close()

    def _connect(self, *, timeout: float | None) -> "_UnixConnection":
        connection = _UnixConnection(path=self._socket_path, timeout=timeout)
        try:
            connection.connect()
        except PermissionError as error:
            connection.close()
            raise AgentUnavailable(f"{self._socket_path} belongs to root: use sudo") from error
        except OSError as error:
            connection.close()
            raise self._unavailable(error.strerror or str(error)) from error
        return connection

    def _ask(
        self, connection: http.client.HTTPConnection, path: str, query: Mapping[str, str], body: bytes | None = None
    ) -> http.client.HTTPResponse:
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, body=body)
            response = connection.getresponse()
            if response.status == http.client.OK:
                return response
            said = response.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unavailable(str(error)) from error
        connection.close()
        raise AgentError(response.status, said or f"the agent answered {response.status} {response.reason}")

    def _unavailable(self, reason: str) -> AgentUnavailable:
        advice = "`klet up` starts one; for an agent of `klet run` name its --root-dir with --state-dir"
        # Who may not look at the node's processes gets the general advice.
        with contextlib.suppress(PermissionError):
            advice = self._advise() or advice
        return AgentUnavailable(f"no agent answers at {self._socket_path} ({reason}); {advice}")


@contextlib.contextmanager
def _known_path(path: str) -> Iterator[None]:
    try:
        yield
    except AgentError as error:
        if error.status != http.client.NOT_FOUND:
            raise
        raise OtherVersion(path, "there is no such path") from error


def _decode(cls: type[T], path: str, body: bytes) -> T:
    try:
        return decode(cls, body)
    except DecodeError as error:
        raise OtherVersion(path, str(error)) from error


class AgentStream:
    """An answer that goes on."""

    def __init__(self, *, connection: "_UnixConnection", response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        # Kept, because the connection forgets its socket when the answer is its last.
        self._socket = connection.stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read1(self) -> bytes:
        """Return what has arrived; empty at the end."""
        try:
            return self._response.read1(1 << 16)
        except (OSError, http.client.HTTPException):
            # The agent went away, or another thread has seen enough.
            return b""

    def lines(self) -> Iterator[bytes]:
        rest = b""
        while piece := self.read1():
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines

    def interrupt(self) -> None:
        """End the answer from another thread; the one that reads sees the end and closes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, *, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stream.settimeout(timeout)

    def connect(self) -> None:
        self.stream.connect(str(self._path))
        self.sock = self.stream

    def close(self) -> None:
        super().close()
        self.stream.close()
