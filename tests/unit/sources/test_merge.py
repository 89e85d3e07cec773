from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from klet.api.container import Container
from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.pod import Pod, PodResourceClaimStatus, PodSpec, PodStatus
from klet.api.times import Time
from klet.sources.merge import PodChangeKind, PodChanges, SourceOperation, duplicate_message, merge_pods

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = Time.of(NOW + timedelta(minutes=1))
ADD, UPDATE, DELETE, REMOVE, RECONCILE = (
    PodChangeKind.ADD,
    PodChangeKind.UPDATE,
    PodChangeKind.DELETE,
    PodChangeKind.REMOVE,
    PodChangeKind.RECONCILE,
)


def pod(uid: str, *, name: str = "", namespace: str = "ns", image: str = "a:1", phase: str = "", **meta) -> Pod:
    return Pod(
        metadata=ObjectMeta(uid=uid, name=name or uid, namespace=namespace, **meta),
        spec=PodSpec(containers=(Container(name="app", image=image),)),
        status=PodStatus(phase=phase),
    )


P1, P2, P3, P4 = (pod(f"p{number}") for number in range(1, 5))


class Source:
    """Sends batches and notes what they change, by kind and uid."""

    def __init__(self, name: str = "file", *, is_remembered: bool = True) -> None:
        self.name = name
        self.is_remembered = is_remembered
        self.known = {}
        self.last = {}
        self.is_first = True

    def send(
        self, *pods: Pod, operation: SourceOperation = SourceOperation.SET
    ) -> list[tuple[PodChangeKind, list[str]]]:
        is_first = self.is_first and operation is SourceOperation.SET
        merged = merge_pods(
            self.known, pods, source=self.name, now=NOW, operation=operation, is_first=is_first, last=self.last
        )
        if self.is_remembered:
            self.last = {pod.metadata.uid: pod for pod in pods}
        if operation is SourceOperation.SET:
            self.is_first = False
        self.known = merged.known
        assert {change.source for change in merged.changes} <= {self.name}
        return [(change.kind, [pod.metadata.uid for pod in change.pods]) for change in merged.changes]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([()], [[(ADD, [])]], id="the first set, empty, is an empty addition"),
        pytest.param([(), ()], [[(ADD, [])], []], id="the second empty set says nothing"),
        pytest.param([(P1,), (P1,)], [[(ADD, ["p1"])], []], id="an unchanged pod says nothing"),
        pytest.param(
            [(P1,), (pod("p1", image="a:2"),)], [[(ADD, ["p1"])], [(UPDATE, ["p1"])]], id="a changed spec is an update"
        ),
        pytest.param(
            [(P1,), (pod("p1", deletion_timestamp=LATER),)],
            [[(ADD, ["p1"])], [(DELETE, ["p1"])]],
            id="a time of deletion is a deletion",
        ),
        pytest.param(
            [(P1,), (pod("p1", deletion_timestamp=LATER),), (pod("p1", deletion_timestamp=LATER),)],
            [[(ADD, ["p1"])], [(DELETE, ["p1"])], []],
            id="a deletion is reported once",
        ),
        pytest.param(
            [(pod("p1", deletion_timestamp=LATER),)], [[(ADD, ["p1"])]], id="a pod that is new and deleted is added"
        ),
        pytest.param(
            [(P1,), (pod("p1", deletion_grace_period_seconds=5),)],
            [[(ADD, ["p1"])], [(UPDATE, ["p1"])]],
            id="another grace period is an update",
        ),
        pytest.param(
            [(P1,), (pod("p1", phase="Running"),)],
            [[(ADD, ["p1"])], [(RECONCILE, ["p1"])]],
            id="only another status is to be reconciled",
        ),
        pytest.param(
            [(P1,), (pod("p1", labels={"a": "b"}),)], [[(ADD, ["p1"])], [(UPDATE, ["p1"])]], id="a label is an update"
        ),
        pytest.param(
            [(P1,), (pod("p1", annotations={"a": "b"}),)],
            [[(ADD, ["p1"])], [(UPDATE, ["p1"])]],
            id="an annotation is an update",
        ),
        *(
            pytest.param(
                [(P1,), (pod("p1", annotations={f"kubernetes.io/config.{local}": "x"}),)],
                [[(ADD, ["p1"])], []],
                id=f"the local annotation {local} is none",
            )
            for local in ("source", "mirror", "seen")
        ),
        pytest.param(
            [(P1,), (replace(P1, metadata=replace(P1.metadata, owner_references=(OwnerReference(name="x"),))),)],
            [[(ADD, ["p1"])], []],
            id="another owner is none",
        ),
        pytest.param(
            [(P1, P2, P3), (pod("p2", image="a:2"), P4)],
            [[(ADD, ["p1", "p2", "p3"])], [(REMOVE, ["p1", "p3"]), (ADD, ["p4"]), (UPDATE, ["p2"])]],
            id="removals come before additions and updates",
        ),
        pytest.param(
            [
                (P1, P2, P3),
                (pod("p1", phase="Running"), pod("p2", deletion_timestamp=LATER), pod("p3", image="a:2"), P4),
            ],
            [[(ADD, ["p1", "p2", "p3"])], [(ADD, ["p4"]), (UPDATE, ["p3"]), (DELETE, ["p2"]), (RECONCILE, ["p1"])]],
            id="additions, updates, deletions, reconciliations",
        ),
        pytest.param(
            [(pod("u1", name="web"),), (pod("u2", name="web"),)],
            [[(ADD, ["u1"])], [(REMOVE, ["u1"]), (ADD, ["u2"])]],
            id="the same name with another uid is another pod",
        ),
        pytest.param(
            [(pod("u1", name="web"), pod("u2", name="web", namespace="other"))],
            [[(ADD, ["u1", "u2"])]],
            id="the same name in two namespaces is two pods",
        ),
        pytest.param(
            [(pod("u1", name="web"), pod("u2", name="web"))],
            [[(ADD, ["u1"])]],
            id="the same name and namespace twice: the later one is dropped",
        ),
    ],
)
@pytest.mark.parametrize("is_remembered", [True, False])
def test_sets(batches, expected, is_remembered):
    source = Source(is_remembered=is_remembered)
    assert [source.send(*batch) for batch in batches] == expected


def test_additions_remove_nothing():
    source = Source()
    assert source.send(P1, operation=SourceOperation.ADD) == [(ADD, ["p1"])]
    assert source.send(P1, operation=SourceOperation.ADD) == []
    assert source.send(P2, operation=SourceOperation.ADD) == [(ADD, ["p2"])]
    assert source.send(pod("p1", image="a:2"), operation=SourceOperation.ADD) == [(UPDATE, ["p1"])]
    assert source.send(pod("p1", image="a:2"), operation=SourceOperation.SET) == [(REMOVE, ["p2"]), (ADD, [])]


def test_removals_name_known_pods():
    source = Source()
    source.send(P1, P2)
    assert source.send(P1, P3, operation=SourceOperation.REMOVE) == [(REMOVE, ["p1"])]
    assert list(source.known) == ["p2"]


def test_the_empty_addition_comes_before_reconciliations():
    source = Source()
    source.send(P1, operation=SourceOperation.ADD)
    assert source.send(pod("p1", phase="Running")) == [(ADD, []), (RECONCILE, ["p1"])]


def test_a_set_of_one_source_leaves_the_pods_of_another():
    file, http = Source("file"), Source("http")
    file.send(P1)
    http.send(P2)
    assert file.send() == [(REMOVE, ["p1"])]
    assert list(http.known) == ["p2"]


def test_a_new_pod_is_marked_with_its_source_and_the_time_it_was_seen():
    merged = merge_pods({}, [pod("p1", annotations={"a": "b"})], source="file", now=NOW)
    assert merged.changes[0].pods[0].metadata.annotations == {
        "a": "b",
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.seen": "2030-01-01T12:00:00.000000000Z",
    }


def test_the_time_it_was_seen_is_local():
    local = (NOW + timedelta(microseconds=1500)).astimezone(timezone(timedelta(hours=-3)))
    merged = merge_pods({}, [P1], source="file", now=local)
    seen = merged.known["p1"].metadata.annotations["kubernetes.io/config.seen"]
    assert seen == "2030-01-01T09:00:00.001500000-03:00"


def test_an_update_keeps_what_only_the_node_knows():
    first = merge_pods({}, [pod("p1", resource_version="1")], source="file", now=NOW)
    changed = pod("p1", image="a:2", phase="Running", labels={"l": "m"}, annotations={"a": "b"}, generation=2)
    second = merge_pods(first.known, [changed], source="file", now=NOW + timedelta(hours=1))
    updated = second.known["p1"]
    assert second.changes == (PodChanges(kind=UPDATE, source="file", pods=(updated,)),)
    assert updated.spec == changed.spec
    assert updated.status == changed.status
    assert updated.metadata.labels == {"l": "m"}
    assert updated.metadata.generation == 2
    assert updated.metadata.annotations == {
        "a": "b",
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.seen": "2030-01-01T12:00:00.000000000Z",
    }


def test_a_mirror_annotation_is_kept_as_it_was():
    first = merge_pods({}, [pod("p1", annotations={"kubernetes.io/config.mirror": "old"})], source="api", now=NOW)
    changed = pod("p1", image="a:2", annotations={"kubernetes.io/config.mirror": "new"})
    second = merge_pods(first.known, [changed], source="api", now=NOW)
    assert second.known["p1"].metadata.annotations["kubernetes.io/config.mirror"] == "old"


def test_a_claim_that_was_made_for_a_pod_is_news_for_its_worker():
    source = Source("api")
    source.send(P1)
    made = PodResourceClaimStatus(name="gpu", resource_claim_name="p1-gpu-x7k2p")
    status = replace(P1.status, resource_claim_statuses=(made,))
    assert source.send(replace(P1, status=status)) == [(UPDATE, ["p1"])]
    assert source.known["p1"].status.resource_claim_statuses == (made,)


def test_a_duplicate_is_named():
    first, twin = pod("u1", name="web"), pod("u2", name="web")
    (duplicate,) = merge_pods({}, [first, twin], source="file", now=NOW).duplicates
    assert (duplicate.pod, duplicate.used) == (twin, first)
    assert (
        duplicate_message(duplicate, "file")
        == 'Error validating pod web_ns(u2) from file due to duplicate pod name "web", ignoring'
    )


def test_a_pod_with_the_uid_of_another_is_left_out():
    """All that a pod has on the node is found by its UID: both would share a sandbox."""
    first, second = pod("u1", name="web"), pod("u1", name="intruder")
    merged = merge_pods({}, [first, second, P2], source="file", now=NOW)
    (duplicate,) = merged.duplicates
    assert (duplicate.pod, duplicate.used) == (second, first)
    assert [each.metadata.name for each in merged.known.values()] == ["web", "p2"]
    assert duplicate_message(duplicate, "file") == (
        'Error validating pod intruder_ns(u1) from file due to duplicate pod UID "u1", which web_ns(u1) has, ignoring'
    )


def test_a_running_pod_is_not_replaced_by_one_that_comes_before_it_with_its_uid():
    source = Source()
    source.send(pod("u1", name="web"))
    assert source.send(pod("u1", name="intruder"), pod("u1", name="web")) == []
    assert source.known["u1"].metadata.name == "web"


def test_the_rest_of_a_manifest_goes_when_its_uid_is_used_by_another_pod():
    source = Source()
    source.send(pod("u1", name="web"), pod("u2", name="other"))
    assert source.send(pod("u1", name="web"), pod("u1", name="other")) == [(REMOVE, ["u2"])]
