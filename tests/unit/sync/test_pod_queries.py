"""What others ask about where a pod stands."""

import pytest

from klet.model.pods import PodUID
from klet.sync.ledger import WorkerLedger
from klet.sync.pod_queries import PodQueries
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import NOW, make_pod

UID = PodUID("uid-1")
QUERIES = {
    "may run": PodQueries.could_have_running_containers,
    "no runtime": PodQueries.should_runtime_be_removed,
    "no content": PodQueries.should_content_be_removed,
}


def ledger(state: WorkerState | None, *, is_complete: bool = True) -> WorkerLedger:
    made = WorkerLedger()
    if state is not None:
        made.put(UID, state)
    if is_complete:
        made.mark_complete()
    return made


def state(stage: Stage = Stage.SYNCING, **more) -> WorkerState:
    return WorkerState(pod=make_pod(), stage=stage, **more)


REQUESTED = state(Stage.TERMINATING)
STOPPING = state(Stage.TERMINATING, is_stopping=True)
STOPPED = state(Stage.TERMINATED, is_stopping=True)
OVER = {"no runtime"}


@pytest.mark.parametrize(
    ("known", "is_complete", "expected"),
    [
        pytest.param(None, False, {"may run"}, id="unknown, and the agent has just started"),
        pytest.param(None, True, {"no runtime", "no content"}, id="unknown for good"),
        pytest.param(state(), True, {"may run"}, id="it runs"),
        pytest.param(state(), False, {"may run"}, id="it runs, and the agent has just started"),
        pytest.param(REQUESTED, True, {"may run"}, id="it was asked to stop"),
        pytest.param(STOPPING, True, {"may run"}, id="it is being stopped"),
        pytest.param(
            state(Stage.TERMINATING, is_stopping=True, is_over=True),
            True,
            set(),
            id="its containers have ended, its sandbox is being stopped",
        ),
        pytest.param(STOPPED, True, OVER, id="it has stopped"),
        pytest.param(state(Stage.FINISHED, is_stopping=True), True, OVER, id="all is released"),
        pytest.param(
            state(Stage.FINISHED, is_stopping=True, is_deleted=True),
            True,
            OVER | {"no content"},
            id="all is released, and it is deleted",
        ),
        pytest.param(
            state(Stage.TERMINATED, is_stopping=True, is_deleted=True),
            True,
            OVER,
            id="its last status is made from what is left",
        ),
        pytest.param(state(Stage.TERMINATING, is_evicted=True), True, {"may run"}, id="evicted, and still stopping"),
        pytest.param(
            state(Stage.FINISHED, is_stopping=True, is_evicted=True),
            True,
            OVER | {"no content"},
            id="evicted, and over",
        ),
        pytest.param(
            state(Stage.FINISHED, is_stopping=True, is_deleted=True, restart_requested=True),
            True,
            OVER,
            id="it comes back under its uid",
        ),
    ],
)
def test_queries(known, is_complete, expected):
    queries = PodQueries(ledger=ledger(known, is_complete=is_complete), sources_ready=lambda: True)
    assert {name for name, ask in QUERIES.items() if ask(queries, UID)} == expected


@pytest.mark.parametrize(
    ("source", "stage", "is_started", "expected"),
    [
        pytest.param("file", Stage.TERMINATING, True, True, id="it is being stopped"),
        pytest.param("file", Stage.TERMINATING, False, False, id="it never started"),
        pytest.param("file", Stage.SYNCING, True, False, id="it runs"),
        pytest.param("file", Stage.TERMINATED, True, False, id="it has stopped"),
        pytest.param("", Stage.TERMINATING, True, False, id="a pod of the API"),
    ],
)
def test_whether_the_static_pod_of_a_mirror_is_being_stopped(source, stage, is_started, expected):
    pod = make_pod(source=source)
    known = WorkerState(pod=pod, stage=stage, started_at=NOW if is_started else None)
    queries = PodQueries(ledger=ledger(known), sources_ready=lambda: True)
    assert queries.is_static_terminating("pod_default") is expected
    assert not queries.is_static_terminating("other_default")


def test_whether_all_sources_were_seen_is_asked_each_time():
    answers = iter([False, True])
    queries = PodQueries(ledger=ledger(None), sources_ready=lambda: next(answers))
    assert [queries.are_sources_ready(), queries.are_sources_ready()] == [False, True]
