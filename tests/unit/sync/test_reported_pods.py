from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from klet.api.pod import PodStatus
from klet.model.pods import uid_of
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.sync.ledger import WorkerLedger
from klet.sync.reported_pods import ReportedPods
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
    pods = ReportedPods(pods=store, statuses=StatusBoard(clock=ManualClock()), ledger=ledger)
    assert [pod.metadata.deletion_timestamp for pod in pods.terminating()] == expected


@pytest.mark.parametrize(
    ("is_on_host", "phase", "ips", "expected"),
    [
        pytest.param(True, "Running", ("192.0.2.7", "2001:db8::7"), "192.0.2.7", id="on the node's network"),
        pytest.param(True, "Running", (), "", id="on the network of a node without an address"),
        pytest.param(True, "Pending", ("192.0.2.7",), "", id="not there yet"),
        pytest.param(False, "Running", ("192.0.2.7",), "", id="on a network of its own"),
    ],
)
def test_a_pod_on_the_nodes_network_has_the_nodes_address(is_on_host, phase, ips, expected):
    pod, store = make_pod(), PodStore()
    store.put(replace(pod, spec=replace(pod.spec, host_network=is_on_host), status=PodStatus(phase=phase)))
    view = ReportedPods(pods=store, statuses=StatusBoard(clock=ManualClock()), ledger=WorkerLedger(), node_ips=ips)
    [shown] = view.pods()
    assert shown.status.pod_ip == expected
    assert [each.ip for each in shown.status.pod_ips] == (list(ips) if expected else [])


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        pytest.param("mirror-uid", "static-uid", id="a mirror stands for its static pod"),
        pytest.param("static-uid", "static-uid", id="a static pod is itself"),
        pytest.param("nobody", "nobody", id="unknown"),
    ],
)
def test_the_uid_that_the_runtime_knows(uid, expected):
    pod, store = make_pod(), PodStore()
    static = replace(pod.metadata, uid="static-uid", annotations={"kubernetes.io/config.source": "file"})
    store.put(replace(pod, metadata=static))
    store.put_mirror(replace(pod, metadata=replace(pod.metadata, uid="mirror-uid")))
    view = ReportedPods(pods=store, statuses=StatusBoard(clock=ManualClock()), ledger=WorkerLedger())
    assert view.runtime_uid(uid) == expected
