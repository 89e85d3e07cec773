"""Which syncs of a pod are a consequence of a reboot: until every container runs in a sandbox from after it."""

from datetime import timedelta

import pytest

from klet.model.boots import Reboot
from klet.model.causes import CauseId
from klet.model.pods import PodUID
from klet.model.runtime import RuntimeContainerState
from klet.sync.rebooted_pods import RebootedPods, first_attempt_after, is_back
from klet.sync.worker_roles import StepResult
from klet.testing.builders import NOW, make_pod, make_record, make_sandbox, make_status

EXITED, RUNNING = RuntimeContainerState.EXITED, RuntimeContainerState.RUNNING
UID = PodUID("uid-1")
REBOOT = Reboot(cause=CauseId("reboot"), noticed_at=NOW + timedelta(minutes=1))
KNOWN = Reboot(cause=CauseId("reboot"), noticed_at=NOW - timedelta(minutes=1), before=frozenset({UID}))
LATE = Reboot(cause=CauseId("reboot"), noticed_at=NOW - timedelta(minutes=1))
POD = make_pod("main", uid=UID)
TWO = make_pod("main", "other", uid=UID)


@pytest.mark.parametrize(
    ("reboot", "sandboxes", "expected"),
    [
        pytest.param(REBOOT, [make_sandbox(ready=False)], 1, id="a sandbox from before the reboot is gone"),
        pytest.param(REBOOT, [make_sandbox(attempt=4, ready=False)], 5, id="the next attempt is the first after it"),
        pytest.param(REBOOT, [make_sandbox()], None, id="a sandbox that is ready was made after it"),
        pytest.param(REBOOT, [], None, id="a new pod has nothing to do with it"),
        pytest.param(LATE, [make_sandbox(ready=False)], None, id="a sandbox from after the reboot ended by itself"),
        pytest.param(KNOWN, [make_sandbox(ready=False)], 1, id="a pod is from before, whatever the clock was then"),
        pytest.param(KNOWN, [], 0, id="the runtime has dropped all that was before"),
    ],
)
def test_the_first_sandbox_after_a_reboot(reboot, sandboxes, expected):
    assert first_attempt_after(reboot, make_status(POD, sandboxes=sandboxes)) == expected


AFTER = [make_sandbox(attempt=1), make_sandbox(ready=False)]


@pytest.mark.parametrize(
    ("pod", "records", "sandboxes", "expected"),
    [
        pytest.param(POD, [], [make_sandbox(ready=False)], False, id="there is no new sandbox"),
        pytest.param(POD, [make_record(POD, "main", EXITED, exit_code=255)], AFTER, False, id="it has yet to start"),
        pytest.param(POD, [make_record(POD, "main", RUNNING, sandbox="sandbox-1")], AFTER, True, id="it runs again"),
        pytest.param(
            TWO, [make_record(TWO, "main", RUNNING, sandbox="sandbox-1")], AFTER, False, id="another has yet to start"
        ),
        pytest.param(
            make_pod("main", uid=UID, restart_policy="OnFailure"),
            [make_record(POD, "main", EXITED)],
            AFTER,
            True,
            id="what is done does not start again",
        ),
    ],
)
def test_a_pod_is_back_when_all_that_should_run_does(pod, records, sandboxes, expected):
    assert is_back(pod, make_status(pod, *records, sandboxes=sandboxes), first=1, restart_all=False) == expected


class Inner:
    """Notes the cause of each sync."""

    def __init__(self):
        self.causes = []

    async def sync(self, _pod, _status, *, cause):
        self.causes.append(cause)
        return StepResult()

    async def terminate(self, _pod, _status, **arguments):
        self.causes.append(arguments["cause"])

    async def finish(self, _pod, _status, **arguments):
        self.causes.append(arguments["cause"])


async def test_the_reboot_is_the_cause_until_the_pod_is_back():
    inner = Inner()
    steps = RebootedPods(inner=inner, reboot=REBOOT, restart_all=False)
    dead = make_record(POD, "main", EXITED, exit_code=255)
    alive = make_record(POD, "main", RUNNING, restarts=1, sandbox="sandbox-1")
    lost = [make_sandbox(attempt=1, ready=False), make_sandbox(ready=False)]
    for records, sandboxes in (
        ([dead], [make_sandbox(ready=False)]),
        ([dead], AFTER),
        ([dead, alive], AFTER),
        ([dead, alive], lost),
    ):
        await steps.sync(POD, make_status(POD, *records, sandboxes=sandboxes), cause=CauseId("added"))
    assert inner.causes == ["reboot", "reboot", "added", "added"]


@pytest.mark.parametrize("reboot", [REBOOT, KNOWN], ids=["by its time", "by its name"])
async def test_a_pod_that_is_stopped_keeps_its_own_cause_and_one_that_comes_back_is_another(reboot):
    inner = Inner()
    steps = RebootedPods(inner=inner, reboot=reboot, restart_all=False)
    status = make_status(POD, sandboxes=[make_sandbox(ready=False)])
    await steps.sync(POD, status, cause=None)
    await steps.terminate(POD, status, grace=None, change=None, is_runtime_only=False, cause=CauseId("deleted"))
    await steps.finish(POD, status, was_over=False, cause=CauseId("deleted"))
    await steps.sync(POD, make_status(POD, sandboxes=[]), cause=CauseId("added"))
    assert inner.causes == ["reboot", "deleted", "deleted", "added"]
