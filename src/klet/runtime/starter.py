"""Starts one container: back-off, image, configuration, create, start (startContainer)."""

from collections.abc import Callable
from typing import Protocol

from klet.aio.clock import Clock
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.times import Duration
from klet.cri.errors import CriError, NotFound
from klet.cri.port import RuntimeService
from klet.host.errors import HostError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.images import MissingImage, PresentImage
from klet.model.pods import format_pod
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import RestartCounts
from klet.model.runtime import ContainerId, ContainerRecord, ContainerState, PodRuntimeStatus
from klet.runtime import errors, labels
from klet.runtime.config.container_planner import ContainerPlanner, Place, StartFacts
from klet.runtime.crash_backoff import CrashBackoff
from klet.runtime.quirks.held_names import create_container
from klet.runtime.start_turns import PodTurn
from klet.wire import cri_v1_pb2 as cri

DECIDER = "runtime.starter"


class ImageEnsurer(Protocol):
    """Gets an image onto the node, or says why it is not there."""

    async def ensure(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        before_pull: Callable[[], None],
        parent: CauseId | None,
    ) -> PresentImage | MissingImage: ...


class LogLinks(Protocol):
    """Keeps logs, and the names under which log collectors of the whole node find a container's log."""

    async def link(self, name: str, log: str) -> None:
        """Make the link `name` to a log, unless the log does not exist."""
        ...

    async def remove_log(self, log: str) -> None: ...

    async def make_way(self, log: str) -> None:
        """Let the runtime find a file or nothing where it is to write a log; raises HostError."""
        ...


class ContainerStarter:
    """Brings one container of a pod up."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        images: ImageEnsurer,
        counts: RestartCounts,
        planner: ContainerPlanner,
        links: LogLinks,
        recorder: CauseRecorder,
        clock: Clock,
        backoff: CrashBackoff,
    ) -> None:
        self._runtime = runtime
        self._images = images
        self._counts = counts
        self._planner = planner
        self._links = links
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._backoff = backoff

    async def start(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        place: Place,
        *,
        turn: PodTurn,
        parent: CauseId | None,
    ) -> ContainerRecord:
        """Start it, or raise StartError. Its postStart hook has not run yet."""
        self._hold_back(pod, container, status, parent)
        image = await self._images.ensure(pod, container, before_pull=turn.give_back, parent=parent)
        if isinstance(image, MissingImage):
            raise errors.ImageMissing(image.reason, image.message, until=image.retry_at)
        facts = StartFacts(
            restart_count=await self._restart_count(pod, container.name, status),
            image=image,
            image_volumes=await self._image_volumes(pod, container, turn, parent),
            target_id=_target(container, status),
        )
        await turn.take()
        config = await self._planner.plan(pod, container, place, facts)
        await self._remove_unstarted(container.name, status)
        log = f"{place.sandbox_config.log_directory}/{config.log_path}"
        created = await self._create(config, place, log)
        about = self._decisions.for_pod(pod, container.name)
        about.record(Reason.CREATED, "Container created", parent=parent)
        await self._run(created)
        about.record(Reason.STARTED, "Container started", parent=parent)
        await self._links.link(labels.legacy_log_name(pod, container.name, created), log)
        return ContainerRecord(
            id=created,
            sandbox_id=place.sandbox_id,
            name=container.name,
            state=ContainerState.RUNNING,
            created_at=self._clock.now(),
        )

    def _hold_back(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        parent: CauseId | None,
    ) -> None:
        """Raise while a container that ended must wait before its next start; otherwise count this start."""
        record = status.newest_exited(container.name)
        if record is None or record.finished_at is None:
            return
        delay = self._backoff.wait_after(pod, container, record.finished_at, now=self._clock.now())
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
        raise errors.Backoff(errors.CRASH_LOOP_BACKOFF, message, until=until)

    async def _image_volumes(
        self, pod: Pod, container: Container | EphemeralContainer, turn: PodTurn, parent: CauseId | None
    ) -> dict[str, str]:
        """Have the images that the container mounts on the node, too."""
        mounted = {mount.name for mount in container.volume_mounts}
        refs = {}
        for volume in pod.spec.volumes:
            if volume.image is None or volume.name not in mounted:
                continue
            # Such an image belongs to the pod and to no container, so what is told of it names none.
            wanted = Container(name="", image=volume.image.reference, image_pull_policy=volume.image.pull_policy)
            found = await self._images.ensure(pod, wanted, before_pull=turn.give_back, parent=parent)
            if isinstance(found, MissingImage):
                raise errors.StartError(found.reason, found.reason, until=found.retry_at)
            refs[volume.name] = found.ref
        return refs

    async def _restart_count(self, pod: Pod, container: str, status: PodRuntimeStatus) -> int:
        record = status.newest(container)
        if record is not None:
            return record.restart_count + (0 if record.state is ContainerState.CREATED else 1)
        return await self._counts.next_restart_count(pod, container)

    async def _remove_unstarted(self, container: str, status: PodRuntimeStatus) -> None:
        """A start that an earlier life of the agent asked for may still be under way: it must not come beside ours.

        Its log goes first: if nothing but that were left, it would count as a life.
        """
        record = status.newest(container)
        if record is None or record.state is not ContainerState.CREATED:
            return
        if record.log_path:
            await self._links.remove_log(record.log_path)
        try:
            await self._runtime.remove_container(cri.RemoveContainerRequest(container_id=record.id))
        except NotFound:
            return
        except CriError as error:
            raise errors.StartError(errors.CREATE_CONTAINER_ERROR, error.message) from error

    async def _create(self, config: cri.ContainerConfig, place: Place, log: str) -> ContainerId:
        request = cri.CreateContainerRequest(
            pod_sandbox_id=place.sandbox_id, config=config, sandbox_config=place.sandbox_config
        )
        try:
            await self._links.make_way(log)
            return await create_container(self._runtime, request, clock=self._clock)
        except CriError as error:
            raise errors.StartError(errors.CREATE_CONTAINER_ERROR, error.message) from error
        except HostError as error:
            raise errors.StartError(errors.CREATE_CONTAINER_ERROR, str(error)) from error

    async def _run(self, container_id: str) -> None:
        try:
            await self._runtime.start_container(cri.StartContainerRequest(container_id=container_id))
        except CriError as error:
            raise errors.StartError(errors.RUN_CONTAINER_ERROR, error.message) from error


def _target(container: Container | EphemeralContainer, status: PodRuntimeStatus) -> str:
    """The id of the container that an ephemeral one looks into."""
    if not isinstance(container, EphemeralContainer) or not container.target_container_name:
        return ""
    name = container.target_container_name
    record = status.newest(name)
    if record is None:
        raise errors.StartError(errors.CREATE_CONFIG_ERROR, f"unable to find target container {name}")
    return record.id
