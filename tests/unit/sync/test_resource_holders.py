"""Which containers may still use what they were given."""

import pytest

from klet.sync.ledger import WorkerLedger
from klet.sync.resource_holders import LedgerHolders
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import make_pod

POD = make_pod("main", init=("init",))


@pytest.mark.parametrize(
    ("state", "container", "is_live", "expected"),
    [
        pytest.param(WorkerState(pod=POD), "main", False, True, id="a pod that runs"),
        pytest.param(WorkerState(pod=POD), "init", False, True, id="its init container"),
        pytest.param(WorkerState(pod=POD), "other", False, False, id="a container that its pod lacks"),
        pytest.param(WorkerState(pod=POD, stage=Stage.ADMITTING), "main", False, True, id="a pod that is admitted now"),
        pytest.param(WorkerState(pod=POD, stage=Stage.TERMINATING), "main", False, True, id="one that is stopping"),
        pytest.param(WorkerState(pod=POD, stage=Stage.TERMINATED), "main", False, False, id="one that has stopped"),
        pytest.param(WorkerState(pod=POD, stage=Stage.FINISHED), "main", True, True, id="but the runtime runs it"),
        pytest.param(WorkerState(pod=POD, is_runtime_only=True), "other", False, True, id="one that no source has"),
        pytest.param(None, "main", False, False, id="one that nobody knows"),
        pytest.param(None, "main", True, True, id="one that only the runtime knows"),
    ],
)
def test_who_may_hold(state, container, is_live, expected):
    ledger = WorkerLedger()
    if state is not None:
        ledger.put("uid-1", state)
    holders = LedgerHolders(ledger=ledger, is_live=lambda _: is_live, sources_ready=lambda: True)
    assert holders.may_hold("uid-1", container) == expected


def test_before_all_sources_are_known_everyone_may():
    holders = LedgerHolders(ledger=WorkerLedger(), is_live=lambda _: False, sources_ready=lambda: False)
    assert holders.may_hold("uid-1", "main")
