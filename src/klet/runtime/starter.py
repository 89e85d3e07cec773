"""Starts one container: back-off, image, configuration, create, start (startContainer)."""

from collections.abc import Mapping
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.times import Duration
from klet.cri.errors import CriError
from klet.cri.port import RuntimeService
from klet.model.causes import CauseId, CauseRecorder
from klet.model.images import MissingImage
from klet.model.pods import format_pod
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import RestartCounts
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState
from klet.runtime import errors, labels
from klet.runtime.config.container_planner import ReadySandbox, StartFacts
from klet.runtime.crash_backoff import CrashBackoff
from klet.runtime.creation import ContainerCreator, LogPaths
from klet.runtime.pod_images import PodImages, VolumeImage, volume_images
from klet.runtime.start_turns import PodTurn
from klet.wire import cri_v1_pb2 as cri

DECIDER: Final = "runtime.starter"


class LogLinks(LogPaths, Protocol):
    """Keeps logs, and the names under which log collectors of the whole node find a container's log."""

    async def link(self, name: str, log: str) -> None:
        """Make the link `name` to a log, unless the log does not exist."""
        ...


class ContainerStarter:
    """Brings one container of a pod up."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        images: PodImages,
        counts: RestartCounts,
        creator: ContainerCreator,
        links: LogLinks,
        recorder: CauseRecorder,
        clock: Clock,
        backoff: CrashBackoff,
    ) -> None:
        self._runtime = runtime
        self._images = images
        self._counts = counts
        self._creator = creator
        self._links = links
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._backoff = backoff

    async def pull_volumes(
        self, pod: Pod, sandbox: ReadySandbox, *, turn: PodTurn, parent: CauseId | None
    ) -> Mapping[str, VolumeImage]:
        """Pull the images of the pod's volumes; return them by volume."""
        return await self._images.ensure_volumes(pod, sandbox, turn=turn, parent=parent)

    async def start(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        sandbox: ReadySandbox,
        *,
        turn: PodTurn,
        volumes: Mapping[str, VolumeImage],
        parent: CauseId | None,
    ) -> ContainerRecord:
        """Start it, or raise StartError. Its postStart hook has not run yet.

        `volumes` is what `pull_volumes` returned.
        """
        self._hold_back(pod, container, status, sandbox, parent)
        image = await self._images.ensure(pod, container, sandbox, turn=turn, parent=parent)
        if isinstance(image, MissingImage):
            raise errors.ImageMissing(image.reason, image.message, until=image.retry_at)
        facts = StartFacts(
            restart_count=await self._restart_count(pod, container.name, status),
            image=image,
            image_volumes=volume_images(container, volumes),
            target_id=_target(container, status),
        )
        await turn.take()
        created = await self._creator.create(pod, container, status, sandbox, facts)
        about = self._decisions.for_pod(pod, container.name)
        about.record(Reason.CREATED, "Container created", parent=parent)
        await self._run(created.id)
        about.record(Reason.STARTED, "Container started", parent=parent)
        await self._links.link(labels.legacy_log_name(pod, container.name, created.id), created.log)
        return ContainerRecord(
            id=created.id,
            sandbox_id=sandbox.sandbox_id,
            name=container.name,
            state=RuntimeContainerState.RUNNING,
            created_at=self._clock.now(),
        )

    def _hold_back(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        sandbox: ReadySandbox,
        parent: CauseId | None,
    ) -> None:
        """Raise while a container that ended must wait before its next start; otherwise count this start."""
        record = status.newest_exited(container.name)
        if record is None or record.finished_at is None:
            return
        given = sandbox.allocation.of(container.name)
        delay = self._backoff.wait_after(pod, container, given, record.finished_at, now=self._clock.now())
        if delay is None:
            return
        until = record.finished_at + delay
        where = f"container={container.name} pod={format_pod(pod)}"
        message = f"back-off {Duration.of(delay).wire()} restarting failed {where}"
        self._decisions.for_pod(pod, container.name).record(
            Reason.BACK_OFF_RESTARTING_CONTAINER,
            f"Back-off restarting failed container {container.name} in pod {format_pod(pod)}",
            measurements={
                "backoffSeconds": delay.total_seconds(),
                "exitCode": record.exit_code,
                "restarts": record.restart_count,
            },
            since=record.finished_at,
            next_step=f"start again at {until.isoformat(timespec='seconds')}",
            next_at=until,
            parent=parent,
        )
        raise errors.StartBackedOff(errors.CRASH_LOOP_BACKOFF, message, until=until)

    async def _restart_count(self, pod: Pod, container: str, status: PodRuntimeStatus) -> int:
        # Not of the newest alone: a call of an agent that was killed may create its container late, with an old count.
        used = [
            record.restart_count + (0 if record.state is RuntimeContainerState.CREATED else 1)
            for record in status.containers
            if record.name == container
        ]
        return max(used) if used else await self._counts.next_restart_count(pod, container)

    async def _run(self, container_id: str) -> None:
        try:
            await self._runtime.start_container(cri.StartContainerRequest(container_id=container_id))
        except CriError as error:
            raise errors.StartError(errors.RUN_CONTAINER_ERROR, error.message) from error


def _target(container: Container | EphemeralContainer, status: PodRuntimeStatus) -> str:
    """Return the id of the container that an ephemeral one targets."""
    if not isinstance(container, EphemeralContainer) or not container.target_container_name:
        return ""
    name = container.target_container_name
    record = status.newest(name)
    if record is None:
        raise errors.StartError(errors.CREATE_CONFIG_ERROR, f"unable to find target container {name}")
    return record.id
