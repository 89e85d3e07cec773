"""Creates one container: its configuration, its log, the runtime's call, and the record of what it was created with."""

from typing import Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.pod import Pod
from klet.cri.errors import CriError, CriNotFound
from klet.cri.port import RuntimeService
from klet.host.cpulist import parse_cpu_list
from klet.host.errors import HostError
from klet.model.pods import PodUID, uid_of
from klet.model.roles import ContainerPins
from klet.model.runtime import ContainerId, PodRuntimeStatus, RuntimeContainerState
from klet.runtime import errors
from klet.runtime.config.container_planner import ContainerPlanner, ReadySandbox, StartFacts
from klet.runtime.quirks.held_names import create_container
from klet.wire import cri_v1_pb2 as cri


class LogPaths(Protocol):
    """Keeps the paths of logs free for the runtime."""

    async def remove_log(self, log: str) -> None: ...

    async def make_way(self, log: str) -> None:
        """Let the runtime find a file or nothing where it is to write a log; raises HostError."""
        ...


class CreationRecords(Protocol):
    """Keeps what containers were created with."""

    def record_creation(self, uid: PodUID, container: str, resources: ResourceRequirements) -> None: ...


class CreatedContainer(Struct, frozen=True):
    """A container that has not been started yet, and where its log will be."""

    id: ContainerId
    log: str


class ContainerCreator:
    """Has the runtime create containers."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        planner: ContainerPlanner,
        logs: LogPaths,
        allocations: CreationRecords,
        pins: ContainerPins,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._planner = planner
        self._logs = logs
        self._allocations = allocations
        self._pins = pins
        self._clock = clock

    async def create(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        sandbox: ReadySandbox,
        facts: StartFacts,
    ) -> CreatedContainer:
        """Create it in its pod's sandbox, or raise StartError."""
        config = await self._planner.plan(pod, container, sandbox, facts)
        await self._remove_unstarted(container.name, status)
        log = f"{sandbox.sandbox_config.log_directory}/{config.log_path}"
        created = await self._create(config, sandbox, log)
        self._allocations.record_creation(uid_of(pod), container.name, sandbox.allocation.of(container.name))
        cpus = parse_cpu_list(config.linux.resources.cpuset_cpus)
        await self._pins.before_start(pod, container.name, created, cpus)
        return CreatedContainer(created, log)

    async def _remove_unstarted(self, container: str, status: PodRuntimeStatus) -> None:
        """Remove a container whose start by a previous run may still be under way: it must not run beside ours.

        Its log goes first: if nothing but that were left, it would count as a restart.
        """
        record = status.newest(container)
        if record is None or record.state is not RuntimeContainerState.CREATED:
            return
        if record.log_path:
            await self._logs.remove_log(record.log_path)
        try:
            await self._runtime.remove_container(cri.RemoveContainerRequest(container_id=record.id))
        except CriNotFound:
            return
        except CriError as error:
            raise errors.StartError(errors.CREATE_CONTAINER_ERROR, error.message) from error

    async def _create(self, config: cri.ContainerConfig, sandbox: ReadySandbox, log: str) -> ContainerId:
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox.sandbox_id, config=config, sandbox_config=sandbox.sandbox_config
        )
        try:
            await self._logs.make_way(log)
            return await create_container(self._runtime, request, clock=self._clock)
        except CriError as error:
            raise errors.StartError(errors.CREATE_CONTAINER_ERROR, error.message) from error
        except HostError as error:
            raise errors.StartError(errors.CREATE_CONTAINER_ERROR, str(error)) from error
