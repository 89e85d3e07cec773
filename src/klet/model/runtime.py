"""A pod as the runtime shows it: immutable records read from the CRI, newest first (kubecontainer.PodStatus)."""

from datetime import datetime
from enum import StrEnum
from typing import NewType

from msgspec import Struct, field
from msgspec.structs import replace

from klet.api.container import ContainerPort
from klet.api.container_status import ContainerUser
from klet.api.handlers import LifecycleHandler
from klet.model.pods import PodUID

ContainerId = NewType("ContainerId", str)
SandboxId = NewType("SandboxId", str)

START_ERROR = "StartError"
"""containerd's reason for a container whose process could not be started."""


class RuntimeContainerState(StrEnum):
    """What the runtime says of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class ContainerOrigin(Struct, frozen=True, kw_only=True):
    """What the annotations of a container say about its pod: enough to stop it when the pod object is gone."""

    termination_grace: int | None = None
    deletion_grace: int | None = None
    pre_stop: LifecycleHandler | None = None
    ports: tuple[ContainerPort, ...] = ()


class GivenResources(Struct, frozen=True, kw_only=True):
    """The resources that the runtime reports; None where it reports nothing. CPU in thousandths, memory in bytes."""

    cpu_request: int | None = None
    cpu_limit: int | None = None
    memory_limit: int | None = None


class ContainerRecord(Struct, frozen=True, kw_only=True):
    """One container the runtime knows: running, created or dead."""

    id: ContainerId
    sandbox_id: SandboxId
    name: str
    attempt: int = 0
    state: RuntimeContainerState
    image: str = ""
    image_ref: str = ""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    spec_hash: int = 0
    restart_count: int = 0
    log_path: str = ""
    resources: GivenResources | None = None
    user: ContainerUser | None = None
    stop_signal: str = ""
    """With which the runtime stops it; empty where the runtime does not report that."""
    recursive_read_only: frozenset[str] = frozenset()
    """Where it has mounts of which nothing below can be written either."""
    image_volumes: frozenset[str] | None = None
    """The images that it mounts; None in a list, which does not show them."""
    origin: ContainerOrigin = field(default_factory=ContainerOrigin)


class SandboxRecord(Struct, frozen=True, kw_only=True):
    """One sandbox of a pod."""

    id: SandboxId
    attempt: int
    ready: bool
    created_at: datetime
    ips: tuple[str, ...] = ()
    host_network: bool = False
    source: str = ""
    """Where the pod came from: `file`, `http`, `api`; empty for a pod without that annotation."""


class FirstStart(Struct, frozen=True):
    """What klet has made for a pod of which the runtime had nothing: known without a list."""

    sandbox: SandboxRecord
    containers: tuple[ContainerId, ...]


class PodRuntimeStatus(Struct, frozen=True, kw_only=True):
    """Everything the runtime knows of one pod, at one instant. Sandboxes and containers are sorted newest first."""

    uid: PodUID
    name: str = ""
    namespace: str = ""
    ips: tuple[str, ...] = ()
    sandboxes: tuple[SandboxRecord, ...] = ()
    containers: tuple[ContainerRecord, ...] = ()

    def newest(self, container_name: str) -> ContainerRecord | None:
        """Return the newest record of that name in any sandbox."""
        return next((record for record in self.containers if record.name == container_name), None)

    def newest_exited(self, container_name: str) -> ContainerRecord | None:
        """Return the newest record of that name of a container that has ended."""
        ended = (record for record in self.containers if record.state is RuntimeContainerState.EXITED)
        return next((record for record in ended if record.name == container_name), None)

    def running(self) -> tuple[ContainerRecord, ...]:
        return tuple(record for record in self.containers if record.state is RuntimeContainerState.RUNNING)

    @property
    def has_ended(self) -> bool:
        """For certain: no container is in any other state."""
        return all(record.state is RuntimeContainerState.EXITED for record in self.containers)

    def active_containers(self) -> tuple[ContainerRecord, ...]:
        """Return containers of the newest ready sandbox."""
        ready = next((sandbox.id for sandbox in self.sandboxes if sandbox.ready), None)
        return tuple(record for record in self.containers if record.sandbox_id == ready)

    def members(self) -> dict[str, str]:
        """Return state by id, of sandboxes and containers alike."""
        states: dict[str, str] = {
            sandbox.id: RuntimeContainerState.RUNNING if sandbox.ready else RuntimeContainerState.EXITED
            for sandbox in self.sandboxes
        }
        return states | {record.id: record.state for record in self.containers}

    def with_ips(self, ips: tuple[str, ...]) -> "PodRuntimeStatus":
        return replace(self, ips=ips)

    @property
    def source(self) -> str:
        """Where the pod came from when its newest sandbox was made."""
        return self.sandboxes[0].source if self.sandboxes else ""

    @property
    def is_empty(self) -> bool:
        return not self.sandboxes and not self.containers

    @property
    def is_live(self) -> bool:
        """True while a container runs or a sandbox is ready."""
        return bool(self.running()) or any(sandbox.ready for sandbox in self.sandboxes)


class StartFailure(Struct, frozen=True):
    """Why the newest attempt to start a container failed (an entry of the reason cache)."""

    reason: str
    message: str
