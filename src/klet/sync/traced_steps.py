"""Spans for the steps of the pod workers: syncPod, syncTerminatingPod and syncTerminatedPod, as upstream names them."""

from typing import Final

from klet.api.pod import Pod
from klet.model.causes import CauseId
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.model.tracing import Tracer
from klet.sync.worker_roles import PodSteps, StepResult
from klet.sync.worker_state import StatusChange

SCOPE: Final = "k8s.io/kubernetes/pkg/kubelet"


class TracedSteps:
    """The steps of another one, each in a span: the calls of the runtime that it makes are its children."""

    def __init__(self, *, inner: PodSteps, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer
        self._synced: dict[PodUID, Pod] = {}
        """Each pod as it was last synced."""

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult:
        attributes = {**pod_attributes(pod), "k8s.pod.update_type": self._update_type(pod)}
        with self._tracer.span("syncPod", scope=SCOPE, attributes=attributes) as span:
            result = await self._inner.sync(pod, status, cause=cause)
            if result.failure is not None:
                span.fail(result.failure.value)
            return result

    async def terminate(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        *,
        grace: int | None,
        change: StatusChange | None,
        is_runtime_only: bool,
        cause: CauseId | None,
    ) -> None:
        # Upstream has no span for pods that only the runtime knows.
        if is_runtime_only:
            await self._inner.terminate(
                pod, status, grace=grace, change=change, is_runtime_only=is_runtime_only, cause=cause
            )
            return
        with self._tracer.span("syncTerminatingPod", scope=SCOPE, attributes=pod_attributes(pod)):
            await self._inner.terminate(
                pod, status, grace=grace, change=change, is_runtime_only=is_runtime_only, cause=cause
            )

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, was_over: bool, cause: CauseId | None) -> None:
        self._synced.pop(uid_of(pod), None)
        with self._tracer.span("syncTerminatedPod", scope=SCOPE, attributes=pod_attributes(pod)):
            await self._inner.finish(pod, status, was_over=was_over, cause=cause)

    def _update_type(self, pod: Pod) -> str:
        """Return upstream's word for what led to a sync: the pod is new, its spec has changed, or neither."""
        before = self._synced.get(uid_of(pod))
        self._synced[uid_of(pod)] = pod
        if before is None:
            return "create"
        return "sync" if before.spec == pod.spec else "update"


def pod_attributes(pod: Pod) -> dict[str, str | int]:
    """Return upstream's attributes of a pod."""
    metadata = pod.metadata
    return {
        "k8s.pod.uid": metadata.uid,
        "k8s.pod": f"{metadata.namespace}/{metadata.name}",
        "k8s.pod.name": metadata.name,
        "k8s.namespace.name": metadata.namespace,
    }
