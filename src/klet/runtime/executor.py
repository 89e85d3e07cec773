"""Carries out pod actions on the runtime, in upstream's order (kuberuntime SyncPod)."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.cri.errors import CriError, NotFound
from klet.cri.port import RuntimeService
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder, Finding
from klet.model.network import DnsConfig
from klet.model.pods import format_pod, subject_of
from klet.model.runtime import PodRuntimeStatus, SandboxId, StartFailure
from klet.runtime.actions import PodActions
from klet.runtime.errors import Backoff, PostStartFailed, StartError
from klet.runtime.killer import PodKiller
from klet.runtime.post_start import PostStart
from klet.runtime.sandbox_config import SandboxSettings, build_sandbox_config
from klet.runtime.starter import ContainerStarter, Place
from klet.wire import cri_v1_pb2 as cri

DECIDER = "runtime.executor"


class PodDns(Protocol):
    """Says how a pod resolves names."""

    async def config_for(self, pod: Pod) -> DnsConfig: ...


class CgroupParents(Protocol):
    """Says which cgroup a pod's sandbox and containers live in."""

    def parent_of(self, pod: Pod) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOutcome:
    """What a sync could not do."""

    failures: Mapping[str, StartFailure] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    retry_at: datetime | None = None
    """The earliest instant at which a back-off ends."""


@dataclass(slots=True)
class _Progress:
    failures: dict[str, StartFailure] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    retry_at: datetime | None = None

    def outcome(self) -> SyncOutcome:
        return SyncOutcome(failures=self.failures, errors=tuple(self.errors), retry_at=self.retry_at)

    def fail_at(self, action: str, target: str, message: str, *, reason: str = "") -> None:
        self.errors.append(f'failed to "{action}" for "{target}" with {reason or f"{action}Error"}: "{message}"')

    def fail(self, container: str, error: StartError) -> None:
        self.failures[container] = StartFailure(error.reason, error.message)
        self.fail_at("StartContainer", container, error.message, reason=error.reason)
        if isinstance(error, Backoff):
            self.retry_at = min(self.retry_at or error.until, error.until)


@asynccontextmanager
async def _given_back(turn: asyncio.Semaphore) -> AsyncIterator[None]:
    """Let others have the turn meanwhile, and take it again."""
    turn.release()
    try:
        yield
    finally:
        await turn.acquire()


class PodExecutor:
    """Does to the runtime what the actions say."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        starter: ContainerStarter,
        post_start: PostStart,
        killer: PodKiller,
        dns: PodDns,
        cgroups: CgroupParents,
        recorder: CauseRecorder,
        settings: SandboxSettings,
        starts: asyncio.Semaphore,
    ) -> None:
        self._runtime = runtime
        self._starter = starter
        self._post_start = post_start
        self._killer = killer
        self._dns = dns
        self._cgroups = cgroups
        self._recorder = recorder
        self._settings = settings
        self._starts = starts

    async def carry_out(
        self, pod: Pod, status: PodRuntimeStatus, actions: PodActions, *, parent: CauseId | None
    ) -> SyncOutcome:
        """Kill, create and start. What fails is told in the outcome; only a bug raises."""
        progress = _Progress()
        if not await self._kill(pod, status, actions, progress, parent):
            return progress.outcome()
        if not (actions.create_sandbox or actions.starts):
            return progress.outcome()
        # Many sandboxes at once slow the runtime down for all of them, so starts take turns.
        async with self._starts:
            place = await self._place(pod, status, actions, progress, parent)
            if place is not None:
                await self._start_all(pod, status, actions, place, progress, parent)
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
                    await self._purge_init(pod, status)
                return True
            for kill in actions.kill:
                target = kill.name
                await self._killer.kill_container(
                    pod, by_id[kill.id], message=kill.message, reason=kill.reason, parent=parent
                )
        except CriError as error:
            progress.fail_at("KillPodSandbox" if actions.kill_pod else "KillContainer", target, str(error))
            return False
        return True

    async def _purge_init(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """A new sandbox starts initialization over, so records of init containers must not count as done.

        Those that the status shows running have just been stopped with the pod.
        """
        names = {container.name for container in pod.spec.init_containers}
        for record in status.containers:
            if record.name in names:
                try:
                    await self._runtime.remove_container(cri.RemoveContainerRequest(container_id=record.id))
                except NotFound:
                    continue

    async def _place(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        actions: PodActions,
        progress: _Progress,
        parent: CauseId | None,
    ) -> Place | None:
        """The sandbox to start in: the one that is there, or a new one."""
        existing = None if actions.create_sandbox else actions.sandbox_id
        name = format_pod(pod)
        try:
            config = build_sandbox_config(
                pod,
                attempt=actions.attempt,
                dns=await self._dns.config_for(pod),
                cgroup_parent=self._cgroups.parent_of(pod),
                settings=self._settings,
            )
        except KletError as error:
            if existing is None:
                message = f'Failed to generate sandbox config for pod "{name}": {error}'
                self._fail_sandbox(pod, message, error, progress, parent)
            else:
                message = f'GeneratePodSandboxConfig for pod "{name}" failed: {error}'
                progress.fail_at("ConfigPodSandbox", existing, message)
            return None
        if existing is not None:
            return Place(sandbox_id=existing, sandbox_config=config, pod_ips=status.ips)
        try:
            answer = await self._runtime.run_pod_sandbox(cri.RunPodSandboxRequest(config=config))
        except CriError as error:
            self._fail_sandbox(pod, f'Failed to create sandbox for pod "{name}": {error}', error, progress, parent)
            return None
        return await self._new_place(pod, SandboxId(answer.pod_sandbox_id), config, progress, parent)

    def _fail_sandbox(
        self, pod: Pod, message: str, error: KletError, progress: _Progress, parent: CauseId | None
    ) -> None:
        progress.fail_at("CreatePodSandbox", format_pod(pod), message)
        text = f"Failed to create pod sandbox: {error}"
        self._record(pod, "FailedCreatePodSandBox", text, parent, next_step="try again after a back-off")

    async def _new_place(
        self,
        pod: Pod,
        sandbox_id: SandboxId,
        config: cri.PodSandboxConfig,
        progress: _Progress,
        parent: CauseId | None,
    ) -> Place | None:
        """The addresses of a sandbox that was just made."""
        try:
            sandbox = await self._runtime.pod_sandbox_status(cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id))
        except CriError as error:
            progress.errors.append(f"failed to SyncPod: {error}")
            text = f"Unable to get pod sandbox status: {error}"
            self._record(pod, "FailedPodSandBoxStatus", text, parent, next_step="try again after a back-off")
            return None
        network = sandbox.status.network
        ips = () if pod.spec.host_network or not network.ip else (network.ip, *(ip.ip for ip in network.additional_ips))
        self._record(pod, "SandboxCreated", f"sandbox attempt {config.metadata.attempt} is ready", parent)
        return Place(sandbox_id=sandbox_id, sandbox_config=config, pod_ips=ips)

    async def _start_all(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        actions: PodActions,
        place: Place,
        progress: _Progress,
        parent: CauseId | None,
    ) -> None:
        ephemeral: Sequence[Container | EphemeralContainer] = pod.spec.ephemeral_containers
        for index in actions.start_ephemeral:
            await self._start(pod, ephemeral[index], status, place, progress, parent)
        for index in actions.start_init:
            container = pod.spec.init_containers[index]
            started = await self._start(pod, container, status, place, progress, parent)
            if not started and not is_sidecar(container):
                return
        for index in actions.start:
            await self._start(pod, pod.spec.containers[index], status, place, progress, parent)

    async def _start(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        status: PodRuntimeStatus,
        place: Place,
        progress: _Progress,
        parent: CauseId | None,
    ) -> bool:
        try:
            record = await self._starter.start(pod, container, status, place, parent=parent)
            if isinstance(container, Container) and container.lifecycle is not None:
                async with _given_back(self._starts):  # a hook may take for ever
                    await self._post_start.run(pod, container, record, parent=parent)
        except StartError as error:
            progress.fail(container.name, error)
            if not isinstance(error, Backoff | PostStartFailed):
                finding = Finding(
                    subject=subject_of(pod, container.name),
                    decider=DECIDER,
                    decision="Failed",
                    message=f"Error: {error.message}",
                    measurements={"reason": error.reason},
                    next="try again after a back-off",
                )
                self._recorder.record(finding, parent=parent)
            return False
        return True

    def _record(self, pod: Pod, decision: str, message: str, parent: CauseId | None, *, next_step: str = "") -> None:
        finding = Finding(subject=subject_of(pod), decider=DECIDER, decision=decision, message=message, next=next_step)
        self._recorder.record(finding, parent=parent)
