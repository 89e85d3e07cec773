"""Stops containers and pods, giving each its hook, its turn and its grace (killContainer, killPod)."""

import asyncio
import logging
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.container import Container
from klet.api.handlers import LifecycleHandler
from klet.api.pod import Pod
from klet.cri.errors import CriError, CriNotFound
from klet.cri.port import RuntimeService
from klet.model.causes import CauseId, CauseRecorder, Measurement
from klet.model.probes import ProbeKind
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import ContainerRecord, PodRuntimeStatus
from klet.runtime.actions import KillReason
from klet.runtime.hooks import HookError, HookRunner, HookTarget, describe_handler
from klet.runtime.kill.kill_order import KillTurns, base_grace, plan_kill_order, stop_timeout, whole_seconds
from klet.runtime.labels import restore_container
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER = "runtime.kill.killer"
_PROBES = {KillReason.STARTUP_PROBE: ProbeKind.STARTUP, KillReason.LIVENESS_PROBE: ProbeKind.LIVENESS}


class PodKiller:
    """Ends what runs of a pod."""

    def __init__(self, *, runtime: RuntimeService, hooks: HookRunner, recorder: CauseRecorder, clock: Clock) -> None:
        self._runtime = runtime
        self._hooks = hooks
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    async def kill_container(
        self,
        pod: Pod,
        record: ContainerRecord,
        *,
        message: str = "",
        reason: KillReason = KillReason.UNKNOWN,
        grace: int | None = None,
        turns: KillTurns | None = None,
        parent: CauseId | None,
    ) -> None:
        """Stop one container. A container the runtime no longer knows counts as stopped."""
        spec = _spec_of(pod, record)
        granted = base_grace(pod, spec, reason) if grace is None else grace
        measured: dict[str, Measurement] = {"graceSeconds": stop_timeout(granted, None)}
        if (probe := _PROBES.get(reason)) is not None:
            measured["probe"] = str(probe)
        cause = self._decisions.for_pod(pod, record.name).record(
            Reason.KILLING,
            message or f"Stopping container {record.name}",
            measurements=measured,
            next_step="the container ends, or is killed when its grace is over",
            parent=parent,
        )
        hook = spec.lifecycle.pre_stop if spec.lifecycle is not None else None
        if hook is None or granted <= 0:
            failure = await self._stop(record, granted, turns)
        else:
            failure = await self._stop_after_hook(pod, record, spec, hook, granted, turns, cause)
        if failure is not None:
            raise failure
        if turns is not None:
            turns.ended(record.name)

    async def kill_pod(
        self, pod: Pod, status: PodRuntimeStatus, *, grace: int | None = None, parent: CauseId | None
    ) -> None:
        """Stop all running containers at once, then every sandbox; raises the first failure after trying them all."""
        running = status.running()
        turns = KillTurns(waits=plan_kill_order(pod, [record.name for record in running]), clock=self._clock)
        results = await asyncio.gather(
            *(self.kill_container(pod, record, grace=grace, turns=turns, parent=parent) for record in running),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        for sandbox in status.sandboxes:
            try:
                await self._runtime.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id))
            except CriNotFound:
                continue
            except CriError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def remove_pod(self, status: PodRuntimeStatus) -> None:
        """Remove every dead container and sandbox of a pod, so that the runtime forgets it.

        A sandbox that died by itself still holds its network: only stopping it gives that back.
        """
        for record in status.containers:
            try:
                await self._runtime.remove_container(cri.RemoveContainerRequest(container_id=record.id))
            except CriNotFound:
                continue
        for sandbox in status.sandboxes:
            try:
                await self._runtime.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id))
                await self._runtime.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id))
            except CriNotFound:
                continue

    async def _stop_after_hook(
        self,
        pod: Pod,
        record: ContainerRecord,
        spec: Container,
        handler: LifecycleHandler,
        granted: int,
        turns: KillTurns | None,
        cause: CauseId,
    ) -> CriError | None:
        """Stop the container when its hook has ended. A hook that outlasts the grace goes on beside the stop."""
        kind = describe_handler(handler)
        about = self._decisions.for_pod(pod, record.name)
        about.record(
            Reason.PRE_STOP_HOOK,
            f"running the preStop hook ({kind}) of container {record.name}",
            measurements={"graceSeconds": granted},
            next_step="the container is asked to stop when the hook ends, or when its grace is over",
            parent=cause,
        )
        async with asyncio.TaskGroup() as group:
            hook = group.create_task(self._run_hook(pod, record, spec, handler, cause), name=f"pre-stop-{record.id}")
            spent = await self._wait_for(hook, at_most=granted)
            if not hook.done():
                text = "PreStop hook not completed in grace period"
                measured = {"graceSeconds": granted}
                about.record(Reason.PRE_STOP_HOOK_UNFINISHED, text, measurements=measured, parent=cause)
            failure = await self._stop(record, granted - spent, turns)
            hook.cancel()
        return failure

    async def _run_hook(
        self, pod: Pod, record: ContainerRecord, spec: Container, handler: LifecycleHandler, cause: CauseId
    ) -> None:
        """Run the hook. Its failure is recorded, and the container is stopped all the same."""
        target = HookTarget(pod=pod, container=spec, id=record.id)
        try:
            await self._hooks.run(handler, target, parent=cause)
        except HookError as error:
            logger.warning("A preStop hook failed", extra={"container": record.name, "error": str(error)})
            about = self._decisions.for_pod(pod, record.name)
            about.record(Reason.FAILED_PRE_STOP_HOOK, "PreStopHook failed", parent=cause)

    async def _wait_for(self, hook: "asyncio.Task[None]", *, at_most: int) -> int:
        """Wait until the hook has ended or the time is over; return the whole seconds that took."""
        started = self._clock.monotonic()
        await first_of(_until_done(hook), self._clock.sleep(timedelta(seconds=at_most)))
        return whole_seconds(self._clock.monotonic() - started)

    async def _stop(self, record: ContainerRecord, granted: int, turns: KillTurns | None) -> CriError | None:
        """Stop it within what is left of its grace.

        A failure is returned: raised inside a task group it would come out in a group of its own.
        """
        waited = await turns.wait(record.name, at_most=granted) if turns is not None else 0
        timeout = stop_timeout(granted, None, spent=waited)
        try:
            await self._runtime.stop_container(cri.StopContainerRequest(container_id=record.id, timeout=timeout))
        except CriNotFound:
            return None
        except CriError as error:
            return error
        return None


def _spec_of(pod: Pod, record: ContainerRecord) -> Container:
    """Return the container's spec; one that the pod no longer has is stopped by what the container itself remembers.

    Upstream refuses to stop such a container, and it would never end.
    """
    every = (*pod.spec.containers, *pod.spec.init_containers)
    return next((spec for spec in every if spec.name == record.name), None) or restore_container(record)


async def _until_done(task: "asyncio.Task[None]") -> None:
    """Wait for the task; cancelling this does not cancel the task."""
    await asyncio.wait([task])
