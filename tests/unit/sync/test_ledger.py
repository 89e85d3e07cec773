"""Which pods may start: static pods of one name take turns."""

import pytest

from klet.model.pods import PodUID
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import make_pod


def static(uid: str, stage: Stage = Stage.SYNCING, *, name: str = "web") -> WorkerState:
    return WorkerState(pod=make_pod(name=name, uid=uid, source="file"), stage=stage)


def plain(uid: str) -> WorkerState:
    return WorkerState(pod=make_pod(name="web", uid=uid))


def ledger_of(*states: WorkerState) -> WorkerLedger:
    ledger = WorkerLedger()
    for state in states:
        ledger.put(PodUID(state.pod.metadata.uid), state)
    return ledger


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param([static("a")], ["a"], id="alone"),
        pytest.param([static("a"), static("b"), static("c")], ["a"], id="the first of its name"),
        pytest.param([static("a", Stage.TERMINATING), static("b")], ["a"], id="one that still ends holds the place"),
        pytest.param([static("a", Stage.TERMINATED), static("b")], ["a"], id="until all is released"),
        pytest.param([static("a", Stage.FINISHED), static("b"), static("c")], ["a", "b"], id="then comes the next"),
        pytest.param([static("a"), static("b", name="db")], ["a", "b"], id="another name is another matter"),
        pytest.param([static("a"), plain("b")], ["a", "b"], id="a pod of the API is never held up"),
        pytest.param([plain("a"), static("b")], ["a", "b"], id="nor does it hold up"),
    ],
)
def test_turns(states, expected):
    ledger = ledger_of(*states)
    assert [uid for uid in ledger.all() if ledger.may_start(uid)] == expected


def test_the_turn_is_kept_when_a_state_changes():
    ledger = ledger_of(static("a"), static("b"))
    ledger.put(PodUID("a"), static("a", Stage.TERMINATING))
    assert not ledger.may_start(PodUID("b"))


def test_a_forgotten_pod_delays_no_other():
    ledger = ledger_of(static("a"), static("b"))
    ledger.forget(PodUID("a"))
    ledger.forget(PodUID("a"))
    assert ledger.get(PodUID("a")) is None
    assert ledger.may_start(PodUID("b"))


def test_a_copy_is_given_out():
    ledger = ledger_of(static("a"))
    ledger.all().clear()
    assert ledger.state_of(PodUID("a")).stage is Stage.SYNCING
