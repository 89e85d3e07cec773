"""Everything outside of the agent that its parts reach: real on a node, fake in a simulation."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from klet.aio.clock import Clock
from klet.app.container_ports import ContainerPorts
from klet.app.volumes import NodeVolumes
from klet.cri.events import EventSource
from klet.cri.port import ImageService, RuntimeService
from klet.host.http_client import HttpClient
from klet.host.machine.cache import FactReader
from klet.images.pull_secrets import NodeLogins
from klet.model.causes import CauseRecorder
from klet.model.memory import AgentMemory
from klet.model.roles import RestartCounts
from klet.node.status_inputs import Addresses
from klet.runtime.config.container_planner import ContainerFileMaker
from klet.runtime.gc import Logs
from klet.runtime.kill.termination import LeftFiles
from klet.runtime.sandboxes import CgroupParents, PodDns
from klet.runtime.starter import LogLinks
from klet.status.checkpoint import MemoryStore
from klet.sync.cgroup_step import PodCgroupKeeper, QosKeeper
from klet.sync.housekeeping import OrphanCgroups
from klet.sync.loop import ChangeSource
from klet.sync.pod_holdings import PodDirectoryFiles


class PodFilesPort(ContainerFileMaker, RestartCounts, PodDirectoryFiles, Protocol):
    """Everything the agent asks of the pods' files."""


class LogFilesPort(LogLinks, Logs, Protocol):
    """Everything the agent asks of the containers' logs."""


class PodCgroupsPort(CgroupParents, PodCgroupKeeper, OrphanCgroups, Protocol):
    """Everything the agent asks of the pods' cgroups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside: real in the agent, fake in a simulation."""

    clock: Clock
    runtime: RuntimeService
    images: ImageService
    events: Sequence[EventSource]
    recorder: CauseRecorder
    changes: ChangeSource
    files: PodFilesPort
    left_files: LeftFiles
    logs: LogFilesPort
    http: HttpClient
    cgroups: PodCgroupsPort
    qos: QosKeeper
    dns: PodDns
    runtime_name: str
    node_ips: Callable[[], tuple[str, ...]]
    """The node's own addresses, as containers may ask for them."""
    randomness: random.Random
    containers: ContainerPorts
    volumes: NodeVolumes
    node_logins: NodeLogins
    memory: AgentMemory
    """What an earlier life of the agent left."""
    memory_store: MemoryStore
    machine: FactReader
    addresses: Addresses
    """The addresses of the machine, as a Node has them."""
    storage: Callable[[], Awaitable[int | None]]
    """The size of the filesystem with the root directory."""
    host_ips: Callable[[], tuple[str, ...]] = tuple
    """The same as statuses tell them: only where there is an API server."""
