"""Carries out pod actions on the runtime, in upstream's order (kuberuntime SyncPod)."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.cri.errors import CriError
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import ContainerId, FirstStart, PodRuntimeStatus, SandboxRecord, StartFailure
from klet.runtime.actions import PodActions
from klet.runtime.config.container_planner import ReadySandbox
from klet.runtime.errors import IMAGE_VOLUME_MOUNT_FAILED, PostStartFailed, SandboxFailed, StartBackedOff, StartError
from klet.runtime.kill.killer import PodKiller
from klet.runtime.metrics import ContainerMetrics, container_type, count_image_volumes
from klet.runtime.pod_images import VolumeImage
from klet.runtime.post_start import PostStart
from klet.runtime.removals import PodRemovals
from klet.runtime.sandboxes import SandboxMaker
from klet.runtime.start_turns import PodTurn, StartTurns
from klet.runtime.starter import ContainerStarter

DECIDER = "runtime.executor"


class SyncOutcome(Struct, frozen=True, kw_only=True):
    """What a sync started, and what it could not do."""

    started: frozenset[str] = frozenset()
    failures: Mapping[str, StartFailure] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    retry_at: datetime | None = None
    """The earliest instant at which a back-off ends."""
    first: FirstStart | None = None
    """All that the runtime has of the pod now, if it had nothing before and all went well."""


class _Progress(Struct):
    started: set[str] = field(default_factory=set)
    failures: dict[str, StartFailure] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    retry_at: datetime | None = None
    sandbox: SandboxRecord | None = None
    containers: list[ContainerId] = field(default_factory=list)

    def outcome(self) -> SyncOutcome:
        return SyncOutcome(
            started=frozenset(self.started),
            failures=self.failures,
            errors=tuple(self.errors),
            retry_at=self.retry_at,
            first=FirstStart(self.sandbox, tuple(self.containers)) if self.sandbox and not self.errors else None,
        )

    def fail_sandbox(self, error: SandboxFailed) -> None:
        if error.action:
            self.fail_at(error.action, error.target, error.message)
        else:
            self.errors.append(error.message)
        self.retry_at = error.until

    def fail_at(self, action: str, target: str, message: str, *, reason: str = "") -> None:
        self.errors.append(f'failed to "{action}" for "{target}" with {reason or f"{action}Error"}: "{message}"')

    def fail(self, container: str, error: StartError) -> None:
        self.failures[container] = StartFailure(error.reason, error.message)
        self.fail_at("StartContainer", container, error.message, reason=error.reason)
        if error.until is not None:
            self.retry_at = min(self.retry_at or error.until, error.until)


class _Stage(Struct, frozen=True):
    """What the starts of one sync share: the sandbox, the turn, and the progress so far."""

    sandbox: ReadySandbox
    turn: PodTurn
    progress: _Progress
    volumes: Mapping[str, VolumeImage]
    """The images of the pod's volumes."""


class PodExecutor:
    """Carries out the actions of one pod on the runtime."""

    def __init__(
        self,
        *,
        removals: PodRemovals,
        sandboxes: SandboxMaker,
        starter: ContainerStarter,
        post_start: PostStart,
        killer: PodKiller,
        recorder: CauseRecorder,
        turns: StartTurns,
        metrics: ContainerMetrics,
    ) -> None:
        self._metrics = metrics
        self._removals = removals
        self._sandboxes = sandboxes
        self._starter = starter
        self._post_start = post_start
        self._killer = killer
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._turns = turns

    def held_back(self, pod: Pod, actions: PodActions) -> SyncOutcome | None:
        """Return the outcome of a sync that must wait; None if it may run.

        It waits if the last sandbox failed a moment ago, or if a container that restarts all others ran but a moment.
        """
        if actions.create_sandbox and (until := self._sandboxes.waits_until(pod)) is not None:
            return SyncOutcome(errors=("the last try to make a sandbox failed a moment ago",), retry_at=until)
        if actions.reset and (until := self._removals.waits_until(actions)) is not None:
            return SyncOutcome(errors=("all containers restarted a moment ago",), retry_at=until)
        return None

    async def carry_out(
        self, pod: Pod, status: PodRuntimeStatus, actions: PodActions, *, parent: CauseId | None
    ) -> SyncOutcome:
        """Kill, create and start. Failures are part of the outcome; raises PodStopping if the pod is to stop meanwhile.

        Even then no call that changes the pod is cut short: only the next ones are left out.
        """
        progress = _Progress()
        # As upstream: after a failed kill nothing is started, because the old instance may still run.
        if not await self._kill(pod, status, actions, progress, parent):
            return progress.outcome()
        if not await self._reset(pod, status, actions, progress, parent):
            return progress.outcome()
        has_sandbox = actions.create_sandbox or not actions.kill_pod
        if not has_sandbox or not (actions.create_sandbox or actions.starts):
            return progress.outcome()
        with self._turns.queue(uid_of(pod)) as turn:
            try:
                # Only a new sandbox needs the turn here. Containers of an existing one take theirs in ContainerStarter.
                if actions.create_sandbox:
                    await turn.take()
                sandbox = await self._sandboxes.find_or_create(pod, status, actions, parent=parent)
            except SandboxFailed as error:
                progress.fail_sandbox(error)
            else:
                # If the runtime had nothing of the pod, what is started now is all it has: PLEG then reads these ids
                # instead of listing. With older instances around, that would hide them.
                progress.sandbox = sandbox.made if status.is_empty else None
                volumes = await self._starter.pull_volumes(pod, sandbox, turn=turn, parent=parent)
                await self._start_all(pod, status, actions, _Stage(sandbox, turn, progress, volumes), parent)
        return progress.outcome()

    async def _kill(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        actions: PodActions,
        progress: _Progress,
        parent: CauseId | None,
    ) -> bool:
        by_id = {record.id: record for record in status.containers}
        target = pod.metadata.uid
        try:
            if actions.kill_pod:
                await self._killer.kill_pod(pod, status, parent=parent)
                if actions.create_sandbox:
                    await self._removals.purge_init(pod, status)
                return True
            for kill in actions.kill:
                target = kill.name
                await self._killer.kill_container(
                    pod, by_id[kill.id], message=kill.message, reason=kill.reason, parent=parent
                )
        except CriError as error:
            progress.fail_at("KillPodSandbox" if actions.kill_pod else "KillContainer", target, str(error))
            self._decisions.for_pod(pod, "" if actions.kill_pod else target).record(
                Reason.FAILED_KILL_POD if actions.kill_pod else Reason.FAILED_KILL_CONTAINER,
                f"error killing {'pod' if actions.kill_pod else 'container'}: {error}",
                next_step="try again after a back-off",
                parent=parent,
            )
            return False
        return True

    async def _reset(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        actions: PodActions,
        progress: _Progress,
        parent: CauseId | None,
    ) -> bool:
        """Remove what all containers restart without, in the given order: after a failure nothing more."""
        for number, reset in enumerate(actions.reset):
            try:
                if number == 0:
                    await self._removals.begin_reset()
                await self._removals.reset(pod, status, reset, parent=parent)
            except KletError as error:
                progress.fail_at("RemoveContainer", reset.name, str(error))
                self._decisions.for_pod(pod, reset.name).record(
                    Reason.FAILED_REMOVE_CONTAINER,
                    f"error removing container: {error}",
                    next_step="try again after a back-off",
                    parent=parent,
                )
                return False
        return True

    async def _start_all(
        self, pod: Pod, status: PodRuntimeStatus, actions: PodActions, stage: _Stage, parent: CauseId | None
    ) -> None:
        await self._removals.prune_init(pod, status)
        # Upstream's order. Ephemeral containers come first: they serve to debug a pod whose init containers fail.
        ephemeral: Sequence[Container | EphemeralContainer] = pod.spec.ephemeral_containers
        for index in actions.start_ephemeral:
            await self._start(pod, ephemeral[index], status, stage, parent)
        for index in actions.start_init:
            container = pod.spec.init_containers[index]
            started = await self._start(pod, container, status, stage, parent)
            # A failed sidecar does not stop the next init container from starting; a failed init container does.
            if not started and not is_sidecar(container):
                return
        for index in actions.start:
            await self._start(pod, pod.spec.containers[index], status, stage, parent)

    async def _start(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        stage: _Stage,
        parent: CauseId | None,
    ) -> bool:
        kind, images = container_type(pod, container), count_image_volumes(pod, container)
        try:
            record = await self._starter.start(
                pod, container, status, stage.sandbox, turn=stage.turn, volumes=stage.volumes, parent=parent
            )
            stage.progress.containers.append(record.id)
            if isinstance(container, Container) and container.lifecycle is not None:
                stage.turn.give_back()  # a hook has no deadline
                await self._post_start.run(pod, container, record, parent=parent)
        except StartError as error:
            stage.progress.fail(container.name, error)
            # As upstream: a start that only waits is none.
            if not isinstance(error, StartBackedOff):
                self._metrics.started.add(kind)
                self._metrics.failed.add(kind, error.reason)
                self._metrics.image_volumes.add(by=images)
                if images and error.reason == IMAGE_VOLUME_MOUNT_FAILED:
                    self._metrics.image_volumes_failed.add(by=images)
            # A back-off and a failed hook have been recorded where they were decided.
            if not isinstance(error, StartBackedOff | PostStartFailed):
                self._decisions.for_pod(pod, container.name).record(
                    Reason.FAILED,
                    f"Error: {error.shown}",
                    measurements={"reason": error.reason},
                    next_step="try again after a back-off",
                    next_at=error.until,
                    parent=parent,
                )
            return False
        stage.progress.started.add(container.name)
        self._metrics.started.add(kind)
        self._metrics.image_volumes.add(by=images)
        self._metrics.image_volumes_mounted.add(by=images)
        return True
