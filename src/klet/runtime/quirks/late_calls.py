"""Records when the runtime takes too long to answer about one pod, as it does when that pod's shim hangs.

The call goes on until its own deadline: to give it up early would change nothing in the runtime.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta

from klet.aio.clock import Clock
from klet.cri import calls
from klet.cri.connection import CriTransport
from klet.cri.errors import CriError
from klet.model.causes import CauseId, CauseRecorder, FindingSubject
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.runtime import labels
from klet.wire import cri_v1_pb2 as cri
from klet.wire.methods import Method, RequestT, ResponseT

DECIDER = "runtime.quirks.late_calls"
PATIENCE = timedelta(seconds=10)
SANDBOX_PATIENCE = timedelta(seconds=60)
"""A network plugin may take its time."""


class WatchedTransport:
    """Calls of another transport; a late answer about a pod is recorded, and that it came at last."""

    def __init__(self, *, inner: CriTransport, recorder: CauseRecorder, clock: Clock) -> None:
        self._inner = inner
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        return self._inner.stream(method, request)

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        patience = patience_for(request)
        if patience is None:
            return await self._inner.call(method, request, timeout=timeout)
        answer: ResponseT | CriError
        async with asyncio.TaskGroup() as group:
            watching = self._watch(method.name, request, patience, timeout)
            watch = group.create_task(watching, name=f"late-{method.name}")
            try:
                answer = await self._inner.call(method, request, timeout=timeout)
            except CriError as error:
                answer = error  # raised inside the group it would come out in a group of its own
            finally:
                watch.cancel()
            if watch.done() and (recorded := watch.result()) is not None:
                self._record_answer(method.name, recorded, answer)
        if isinstance(answer, CriError):
            raise answer
        return answer

    async def _watch(
        self, name: str, request: object, patience: timedelta, timeout: timedelta | None
    ) -> tuple[FindingSubject, CauseId] | None:
        """Record that the answer is late; return what was recorded."""
        since = self._clock.now()
        await self._clock.sleep(patience)
        subject = await self._subject(request)
        if subject is None:
            return None
        recorded = self._decisions.about(subject).record(
            Reason.RUNTIME_NOT_ANSWERING,
            f"the runtime does not answer {name} for this pod; its shim may hang",
            measurements={"waitedSeconds": patience.total_seconds()},
            since=since,
            next_step="wait for the answer; no other pod waits for this one",
            next_at=since + timeout if timeout is not None else None,
        )
        return subject, recorded

    def _record_answer(self, name: str, recorded: tuple[FindingSubject, CauseId], answer: object) -> None:
        subject, parent = recorded
        how = f"with an error: {answer}" if isinstance(answer, CriError) else "at last"
        text = f"the runtime has answered {name} {how}"
        self._decisions.about(subject).record(Reason.RUNTIME_ANSWERED, text, parent=parent)

    async def _subject(self, request: object) -> FindingSubject | None:
        """Return whose call it is, as the request says or the runtime's lists, which ask no shim."""
        match request:
            case cri.RunPodSandboxRequest():
                return _of_metadata(request.config.metadata)
            case cri.CreateContainerRequest():
                return _of_metadata(request.sandbox_config.metadata, request.config.metadata.name)
            case cri.StopPodSandboxRequest() | cri.RemovePodSandboxRequest():
                return await self._of_sandbox(request.pod_sandbox_id)
            case _:
                return await self._of_container(getattr(request, "container_id", ""))

    async def _of_sandbox(self, sandbox_id: str) -> FindingSubject | None:
        wanted = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=sandbox_id))
        try:
            answer = await self._inner.call(calls.LIST_POD_SANDBOX, wanted, timeout=PATIENCE)
        except CriError:
            return None  # a runtime that does not answer at all is reported by RuntimeState
        return next((_of_metadata(found.metadata) for found in answer.items), None)

    async def _of_container(self, container_id: str) -> FindingSubject | None:
        wanted = cri.ListContainersRequest(filter=cri.ContainerFilter(id=container_id))
        try:
            answer = await self._inner.call(calls.LIST_CONTAINERS, wanted, timeout=PATIENCE)
        except CriError:
            return None
        return next((_of_labels(found.labels) for found in answer.containers), None)


def patience_for(request: object) -> timedelta | None:
    """Return how long an answer may take before it is recorded; None for calls that no shim can delay."""
    match request:
        case cri.ExecSyncRequest(timeout=0):
            return None  # a hook's command takes as long as it takes
        case cri.StopContainerRequest() | cri.ExecSyncRequest():
            return PATIENCE + timedelta(seconds=request.timeout)
        case cri.RunPodSandboxRequest():
            return SANDBOX_PATIENCE
        case (
            cri.CreateContainerRequest()
            | cri.StartContainerRequest()
            | cri.StopPodSandboxRequest()
            | cri.RemovePodSandboxRequest()
            | cri.RemoveContainerRequest()
        ):
            return PATIENCE
        case _:
            return None


def _of_metadata(metadata: cri.PodSandboxMetadata, container: str = "") -> FindingSubject:
    return FindingSubject(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, container=container)


def _of_labels(found: Mapping[str, str]) -> FindingSubject:
    return FindingSubject(
        namespace=found.get(labels.POD_NAMESPACE, ""),
        name=found.get(labels.POD_NAME, ""),
        uid=found.get(labels.POD_UID, ""),
        container=found.get(labels.CONTAINER_NAME, ""),
    )
