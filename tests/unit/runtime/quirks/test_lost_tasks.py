from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.cri import calls
from klet.cri.errors import Code, CriError, error_for
from klet.runtime.quirks.lost_tasks import ATTEMPTS, DELETE, KILL, ContainerdTasks, LostTaskRemover
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

LOST = error_for(Code.FAILED_PRECONDITION, 'failed to delete containerd container "c1": cannot delete running task c1')
BUSY = error_for(Code.FAILED_PRECONDITION, "task must be stopped before deletion: running")
GONE = error_for(Code.NOT_FOUND, "no running task found")
REMOVE = cri.RemoveContainerRequest(container_id="c1")


class Runtime:
    """Answers each method with what the test has laid down, in turn, and then well."""

    endpoint = "test"

    def __init__(self, **failures: list[CriError]) -> None:
        self._failures = failures
        self.calls: list[str] = []

    async def call(self, method, _request, *, timeout):  # noqa: ARG002 - the port has a deadline
        self.calls.append(method.name)
        if self._failures.get(method.name):
            raise self._failures[method.name].pop(0)
        return method.response()


def remove(runtime: Runtime, method=calls.REMOVE_CONTAINER, request=REMOVE) -> list[str]:
    tasks = ContainerdTasks(connection=runtime, clock=LoopClock(epoch=EPOCH))
    run_virtual(LostTaskRemover(inner=runtime, tasks=tasks).call(method, request, timeout=timedelta(seconds=1)))
    return runtime.calls


@pytest.mark.parametrize(
    ("failures", "calls"),
    [
        pytest.param({}, ["RemoveContainer"], id="nothing is lost"),
        pytest.param(
            {"RemoveContainer": [LOST]},
            ["RemoveContainer", "Kill", "Delete", "RemoveContainer"],
            id="a lost container is ended and removed",
        ),
        pytest.param(
            {"RemoveContainer": [LOST], "Delete": [BUSY]},
            ["RemoveContainer", "Kill", "Delete", "Delete", "RemoveContainer"],
            id="it takes a moment to die",
        ),
        pytest.param(
            {"RemoveContainer": [LOST], "Kill": [GONE], "Delete": [GONE]},
            ["RemoveContainer", "Kill", "Delete", "RemoveContainer"],
            id="it ended by itself meanwhile",
        ),
    ],
)
def test_what_is_asked_of_the_runtime(failures, calls):
    assert remove(Runtime(**failures)) == calls


def test_a_sandbox_with_a_lost_container_is_removed():
    runtime = Runtime(RemovePodSandbox=[LOST])
    request = cri.RemovePodSandboxRequest(pod_sandbox_id="s")
    assert remove(runtime, calls.REMOVE_POD_SANDBOX, request)[-1] == "RemovePodSandbox"


@pytest.mark.parametrize(
    ("failures", "error"),
    [
        pytest.param({"RemoveContainer": [BUSY]}, BUSY, id="another failure comes out as it is"),
        pytest.param({"RemoveContainer": [LOST, LOST]}, LOST, id="it is tried once"),
        pytest.param({"RemoveContainer": [LOST], "Delete": [BUSY] * ATTEMPTS}, BUSY, id="it does not die"),
    ],
)
def test_what_cannot_be_repaired_is_reported(failures, error):
    with pytest.raises(CriError) as caught:
        remove(Runtime(**failures))
    assert caught.value is error


def test_the_calls_are_those_of_containerd():
    paths = {KILL.path, DELETE.path}
    assert paths == {"/containerd.services.tasks.v1.Tasks/Kill", "/containerd.services.tasks.v1.Tasks/Delete"}
