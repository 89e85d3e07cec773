from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.cri import calls
from klet.cri.errors import Code, CriError, error_for
from klet.journal.memory import MemoryJournal
from klet.runtime.quirks.late_calls import WatchedTransport, patience_for
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

SANDBOX = cri.PodSandbox(id="s", metadata=cri.PodSandboxMetadata(name="web", namespace="default", uid="uid-1"))
CONTAINER = cri.Container(
    id="c",
    labels={
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "uid-1",
        "io.kubernetes.container.name": "main",
    },
)


class Runtime:
    """Answers lists at once, and everything else when it pleases."""

    endpoint = "test"

    def __init__(self, clock: LoopClock, *, takes: float, error: CriError | None = None) -> None:
        self._clock = clock
        self._takes = takes
        self._error = error

    async def call(self, method, _request, *, timeout):  # noqa: ARG002 - the port has a deadline
        if method is calls.LIST_CONTAINERS:
            return cri.ListContainersResponse(containers=[CONTAINER])
        if method is calls.LIST_POD_SANDBOX:
            return cri.ListPodSandboxResponse(items=[SANDBOX])
        await self._clock.sleep(timedelta(seconds=self._takes))
        if self._error is not None:
            raise self._error
        return method.response()


def recorded(method, request, *, takes: float) -> list[tuple[str, str, str, str]]:
    clock = LoopClock(epoch=EPOCH)
    journal = MemoryJournal(clock=clock)
    transport = WatchedTransport(inner=Runtime(clock, takes=takes), recorder=journal, clock=clock)
    answer = run_virtual(transport.call(method, request, timeout=timedelta(minutes=2)))
    assert answer == method.response()
    recorded = [(cause.finding.decision, cause.finding.subject) for cause in journal.all()]
    return [(decision, subject.name, subject.uid, subject.container) for decision, subject in recorded]


METADATA = cri.PodSandboxConfig(metadata=SANDBOX.metadata)
MAIN = ("web", "uid-1", "main")
POD = ("web", "uid-1", "")


@pytest.mark.parametrize(
    ("method", "request_", "patience", "subject"),
    [
        pytest.param(
            calls.STOP_CONTAINER, cri.StopContainerRequest(container_id="c", timeout=30), 40, MAIN, id="a stop's grace"
        ),
        pytest.param(
            calls.EXEC_SYNC, cri.ExecSyncRequest(container_id="c", timeout=1), 11, MAIN, id="a probe's own limit"
        ),
        pytest.param(calls.START_CONTAINER, cri.StartContainerRequest(container_id="c"), 10, MAIN, id="a start"),
        pytest.param(calls.REMOVE_CONTAINER, cri.RemoveContainerRequest(container_id="c"), 10, MAIN, id="a removal"),
        pytest.param(
            calls.CREATE_CONTAINER,
            cri.CreateContainerRequest(
                sandbox_config=METADATA, config=cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main"))
            ),
            10,
            MAIN,
            id="a creation",
        ),
        pytest.param(calls.RUN_POD_SANDBOX, cri.RunPodSandboxRequest(config=METADATA), 60, POD, id="a new sandbox"),
        pytest.param(calls.STOP_POD_SANDBOX, cri.StopPodSandboxRequest(pod_sandbox_id="s"), 10, POD, id="its stop"),
        pytest.param(
            calls.REMOVE_POD_SANDBOX, cri.RemovePodSandboxRequest(pod_sandbox_id="s"), 10, POD, id="its removal"
        ),
    ],
)
def test_a_late_answer_is_reported_once_and_names_the_pod(method, request_, patience, subject):
    assert patience_for(request_) == timedelta(seconds=patience)
    assert recorded(method, request_, takes=patience - 1) == []
    late, answered = ("RuntimeNotAnswering", *subject), ("RuntimeAnswered", *subject)
    assert recorded(method, request_, takes=patience * 3) == [late, answered]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(cri.ListContainersRequest(), id="a list asks no shim"),
        pytest.param(cri.ExecSyncRequest(container_id="c"), id="the command of a hook may take without end"),
    ],
)
def test_not_watched(request_):
    assert patience_for(request_) is None


def test_a_late_answer_says_when_it_is_given_up():
    clock = LoopClock(epoch=EPOCH)
    journal = MemoryJournal(clock=clock)
    transport = WatchedTransport(inner=Runtime(clock, takes=20), recorder=journal, clock=clock)
    request = cri.StartContainerRequest(container_id="c")
    run_virtual(transport.call(calls.START_CONTAINER, request, timeout=timedelta(minutes=2)))
    late, answered = journal.all()
    assert late.finding.next_at == EPOCH + timedelta(minutes=2)
    assert answered.parent == late.id
    assert answered.finding.message == "the runtime has answered StartContainer at last"


def test_a_failure_comes_out_as_it_is():
    clock = LoopClock(epoch=EPOCH)
    failure = error_for(Code.UNAVAILABLE, "gone")
    inner = Runtime(clock, takes=20, error=failure)
    transport = WatchedTransport(inner=inner, recorder=MemoryJournal(clock=clock), clock=clock)
    request = cri.StartContainerRequest(container_id="c")
    with pytest.raises(CriError) as caught:
        run_virtual(transport.call(calls.START_CONTAINER, request, timeout=None))
    assert caught.value is failure
