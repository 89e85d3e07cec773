"""When nobody looks at a pod's containers and logs any more."""

from datetime import timedelta

import pytest

from klet.app.pod_fates import CachedPods, LedgerFates
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.pleg.cache import Reading, RuntimeCache
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import NOW, make_pod, make_record, make_status

UID = PodUID("uid-1")
STOPPED = {"stage": Stage.TERMINATED, "terminating_at": NOW, "terminated_at": NOW + timedelta(seconds=1)}
FINISHED = STOPPED | {"stage": Stage.FINISHED}


@pytest.mark.parametrize(
    ("state", "content", "runtime"),
    [
        pytest.param({}, False, False, id="it runs"),
        pytest.param({"stage": Stage.TERMINATING, "is_deleted": True}, False, False, id="it is being stopped"),
        pytest.param(STOPPED, False, True, id="it has stopped and is still wanted"),
        pytest.param(FINISHED, False, True, id="it has finished and is still wanted"),
        pytest.param(STOPPED | {"is_deleted": True}, False, True, id="deleted, its last status is still to be made"),
        pytest.param(FINISHED | {"is_deleted": True}, True, True, id="deleted and finished"),
        pytest.param(
            FINISHED | {"is_deleted": True, "restart_requested": True}, False, True, id="it comes back under its UID"
        ),
        pytest.param({"stage": Stage.TERMINATING, "is_evicted": True}, True, False, id="evicted"),
    ],
)
def test_a_pod_with_a_worker(state, content, runtime):
    ledger = WorkerLedger()
    ledger.put(UID, WorkerState(pod=make_pod(uid=UID), **state))
    fates = LedgerFates(ledger=ledger, sources_ready=lambda: True)
    assert (fates.should_content_be_removed(UID), fates.should_runtime_be_removed(UID)) == (content, runtime)


@pytest.mark.parametrize("complete", [True, False])
def test_a_pod_without_a_worker_is_gone_once_every_wanted_pod_has_one(complete):
    ledger = WorkerLedger()
    if complete:
        ledger.mark_complete()
    fates = LedgerFates(ledger=ledger, sources_ready=lambda: True)
    assert (fates.should_content_be_removed(UID), fates.should_runtime_be_removed(UID)) == (complete, complete)


@pytest.mark.parametrize("ready", [True, False])
def test_whether_all_sources_were_seen_is_asked_each_time(ready):
    assert LedgerFates(ledger=WorkerLedger(), sources_ready=lambda: ready).are_sources_ready() is ready


def test_pods_that_the_cache_has_not_read_well_are_not_shown():
    cache = RuntimeCache()
    seen = CachedPods(cache=cache)
    assert seen.status_of(UID) is None
    pod = make_pod(uid=UID)
    status = make_status(pod, make_record(pod, "main"))
    with seen.changes() as changes:
        cache.put(Reading(status, 1.0))
        assert changes.drain() == [UID]
    assert seen.status_of(UID) == status
    cache.put(Reading(status, 2.0, KletError("no answer")))
    assert seen.status_of(UID) is None
