"""Talks to the agent over its Unix socket: HTTP with the standard library, which imports in no time."""

import contextlib
import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode

import msgspec

from klet.api.codec import decode
from klet.api.pod import Pod, PodList
from klet.errors import KletError

CALL_TIMEOUT = 10.0


class AgentError(KletError):
    """The agent answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AgentUnavailable(KletError):
    """No agent answers on the socket."""


class CauseSubject(msgspec.Struct, frozen=True):
    """What a record is about."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    container: str = ""


class CauseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of the agent, as its journal sends it."""

    at: datetime
    id: str = ""
    parent: str | None = None
    subject: CauseSubject = CauseSubject()
    decider: str = ""
    decision: str = ""
    message: str = ""
    measurements: Mapping[str, str | int | float | bool] = {}
    since: datetime | None = None
    next: str = ""


class StoryStep(CauseRecord, frozen=True, kw_only=True, rename="camel"):
    """A decision, or several equal ones, in the story of a pod."""

    life: int = 0
    times: int = 1
    depth: int = 0
    offset_seconds: float = 0.0


class PodState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pod is, in numbers."""

    phase: str = ""
    ready: bool = False
    containers_ready: int = 0
    containers: int = 0
    restarts: int = 0
    terminating: bool = False
    known: bool = True


class Why(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One reason why a pod is as it is."""

    kind: str = "trouble"
    reason: str = ""
    container: str = ""
    message: str = ""
    measurements: Mapping[str, str | int | float | bool] = {}
    since: datetime | None = None
    next: str = ""
    next_at: datetime | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why something is as it is, and how it came to that."""

    now: datetime
    summary: str = ""
    why: tuple[Why, ...] = ()
    timeline: tuple[StoryStep, ...] = ()


class Explanation(Told, frozen=True, kw_only=True, rename="camel"):
    """What a pod is, and why."""

    pod: CauseSubject = CauseSubject()
    state: PodState = PodState()


class NodeName(msgspec.Struct, frozen=True, kw_only=True):
    """Which node it is."""

    name: str = ""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class NodeExplanation(Told, frozen=True, kw_only=True, rename="camel"):
    """What the node is, and why."""

    node: NodeName = NodeName()
    ready: bool = False
    conditions: tuple[Condition, ...] = ()


class ToldPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the journal remembers."""

    namespace: str
    name: str
    last: datetime


class ToldPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Every pod that the journal remembers, on the node of this name."""

    node_name: str = ""
    pods: tuple[ToldPod, ...] = ()


class AgentClient:
    """The calls that commands make. Each uses a connection of its own."""

    def __init__(self, *, socket_path: Path, is_supervised: Callable[[], bool]) -> None:
        self._socket_path = socket_path
        self._is_supervised = is_supervised
        """Whether something will start the agent again when it has ended."""

    def is_healthy(self) -> bool:
        try:
            return self._get("/healthz").strip() == b"ok"
        except (AgentUnavailable, AgentError):
            return False

    def pods(self) -> tuple[Pod, ...]:
        return decode(PodList, self._get("/pods")).items

    def all_pods(self) -> tuple[Pod, ...]:
        """Also those that nobody wants any more and that are still terminating."""
        return decode(PodList, self.raw_pods()).items

    def raw_pods(self) -> bytes:
        """All pods, as the agent sends them."""
        return self._get("/klet/v1/pods")

    def explain(self, namespace: str, name: str) -> bytes:
        return self._get(f"/klet/v1/explain/{quote(namespace)}/{quote(name)}")

    def explain_node(self) -> bytes:
        return self._get("/klet/v1/node")

    def why(self, namespace: str, name: str) -> tuple[Why, ...]:
        """What the agent names as the causes of how a pod is; the first explains most."""
        return msgspec.json.decode(self.explain(namespace, name), type=Explanation).why

    def told_pods(self) -> ToldPods:
        """The pods that there are records about, also those that are gone."""
        return msgspec.json.decode(self._get("/klet/v1/explain"), type=ToldPods)

    def logs(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Pieces of a container's log as they come."""
        path = f"/containerLogs/{quote(namespace)}/{quote(pod)}/{quote(container)}"
        with self.open(path, query) as stream:
            # read1 returns what is there; read would wait for a full buffer while following.
            while piece := stream.read1():
                yield piece

    def open(self, path: str, query: Mapping[str, str]) -> "AgentStream":
        """An answer without an end of its own."""
        connection = self._connect(timeout=None)
        return AgentStream(connection=connection, response=self._ask(connection, path, query))

    def _get(self, path: str) -> bytes:
        connection = self._connect(timeout=CALL_TIMEOUT)
        try:
            return self._ask(connection, path, {}).read()
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
        self, connection: http.client.HTTPConnection, path: str, query: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        try:
            connection.request("GET", f"{path}?{urlencode(query)}" if query else path)
            response = connection.getresponse()
            if response.status == http.client.OK:
                return response
            body = response.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unavailable(str(error)) from error
        connection.close()
        raise AgentError(response.status, body or f"the agent answered {response.status} {response.reason}")

    def _unavailable(self, reason: str) -> AgentUnavailable:
        advice = "`klet up` starts one; for an agent of `klet run` name its --root-dir with --state-dir"
        # Who may not look at the node's processes gets the general advice.
        with contextlib.suppress(PermissionError):
            if self._is_supervised():
                advice = "the node is up and its supervisor starts the agent again: ask again in a few seconds"
        return AgentUnavailable(f"no agent answers at {self._socket_path} ({reason}); {advice}")


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
        """What has arrived; empty at the end."""
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
