from datetime import UTC, datetime

import pytest

from klet.app.views import BoardPods
from klet.model.pods import uid_of
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

SINCE = datetime(2030, 1, 1, 12, 0, 0, 500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stage", "is_wanted", "expected"),
    [
        pytest.param(Stage.TERMINATING, False, [SINCE.replace(microsecond=0)], id="unwanted and still stopping"),
        pytest.param(Stage.TERMINATING, True, [], id="wanted, so it is on the other list"),
        pytest.param(Stage.TERMINATED, False, [], id="stopped"),
        pytest.param(Stage.FINISHED, False, [], id="over"),
        pytest.param(Stage.SYNCING, False, [], id="not asked to stop yet"),
    ],
)
def test_pods_on_their_way_out(stage, is_wanted, expected):
    pod, ledger, store = make_pod(), WorkerLedger(), PodStore()
    ledger.put(uid_of(pod), WorkerState(pod=pod, stage=stage, terminating_at=SINCE))
    if is_wanted:
        store.put(pod)
    pods = BoardPods(pods=store, statuses=StatusBoard(clock=ManualClock()), ledger=ledger)
    assert [pod.metadata.deletion_timestamp for pod in pods.terminating()] == expected
