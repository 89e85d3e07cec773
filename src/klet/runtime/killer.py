"""Stops containers and pods, giving each its grace (killContainer, killPod)."""

import asyncio

from klet.api.pod import Pod
from klet.cri.errors import CriError, NotFound
from klet.cri.port import RuntimeService
from klet.model.causes import CauseId, CauseRecorder, Finding
from klet.model.pods import subject_of
from klet.model.runtime import ContainerRecord, PodRuntimeStatus
from klet.runtime.actions import KillReason
from klet.runtime.grace import base_grace, stop_timeout
from klet.wire import cri_v1_pb2 as cri

DECIDER = "runtime.killer"


class PodKiller:
    """Ends what runs of a pod."""

    def __init__(self, *, runtime: RuntimeService, recorder: CauseRecorder) -> None:
        self._runtime = runtime
        self._recorder = recorder

    async def kill_container(
        self,
        pod: Pod,
        record: ContainerRecord,
        *,
        message: str = "",
        reason: KillReason = KillReason.UNKNOWN,
        grace: int | None = None,
        parent: CauseId | None,
    ) -> None:
        """Stop one container. A container the runtime no longer knows counts as stopped."""
        spec = next((c for c in (*pod.spec.containers, *pod.spec.init_containers) if c.name == record.name), None)
        timeout = stop_timeout(base_grace(pod, spec, reason), grace)
        self._recorder.record(
            Finding(
                subject=subject_of(pod, record.name),
                decider=DECIDER,
                decision="Killing",
                message=message or f"Stopping container {record.name}",
                measurements={"graceSeconds": timeout},
                next="the container ends, or is killed when its grace is over",
            ),
            parent=parent,
        )
        try:
            await self._runtime.stop_container(cri.StopContainerRequest(container_id=record.id, timeout=timeout))
        except NotFound:
            return

    async def kill_pod(
        self, pod: Pod, status: PodRuntimeStatus, *, grace: int | None = None, parent: CauseId | None
    ) -> None:
        """Stop all running containers at once, then every sandbox; raises the first failure after trying them all."""
        results = await asyncio.gather(
            *(self.kill_container(pod, record, grace=grace, parent=parent) for record in status.running()),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        for sandbox in status.sandboxes:
            try:
                await self._runtime.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id))
            except NotFound:
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
            except NotFound:
                continue
        for sandbox in status.sandboxes:
            try:
                await self._runtime.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id))
                await self._runtime.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id))
            except NotFound:
                continue
