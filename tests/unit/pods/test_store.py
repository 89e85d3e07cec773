"""The pods a node should run, and the mirrors of static ones."""

from msgspec.structs import replace

from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.pods.store import PodStore
from klet.testing.builders import make_pod

STATIC = make_pod(name="web", uid="static", source="file")
FROM_API = make_pod(name="web", uid="api", source="api")


def mirror(uid):
    pod = make_pod(name="web", uid=uid, source="api")
    annotations = {**pod.metadata.annotations, MIRROR_ANNOTATION: "hash"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def test_a_pod_is_found_by_its_uid_and_its_name():
    store = PodStore()
    store.put(STATIC)
    assert store.get("static") is STATIC
    assert store.by_full_name("web_default") is STATIC
    assert store.uids() == {"static"}
    store.remove("static")
    assert store.all() == ()


def test_of_two_pods_of_one_name_the_first_is_found_until_it_goes():
    store = PodStore()
    for pod in (FROM_API, STATIC, FROM_API):
        store.put(pod)
    assert store.by_full_name("web_default") is FROM_API
    assert dict(store.by_uid()) == {"api": FROM_API, "static": STATIC}
    store.remove("api")
    assert store.by_full_name("web_default") is STATIC
    store.remove("static")
    assert store.by_full_name("web_default") is None


def test_a_pod_that_gets_another_name_is_found_by_that_alone():
    store = PodStore()
    store.put(STATIC)
    renamed = replace(STATIC, metadata=replace(STATIC.metadata, name="db"))
    store.put(renamed)
    assert store.by_full_name("web_default") is None
    assert store.by_full_name("db_default") is renamed


def test_a_mirror_is_no_pod_to_run_and_is_found_by_its_static_pod():
    store = PodStore()
    store.put(STATIC)
    store.put_mirror(mirror("m1"))
    assert store.all() == (STATIC,)
    assert store.mirror_of(STATIC) == mirror("m1")
    assert store.static_of("web_default") is STATIC


def test_only_a_static_pod_is_shown_by_a_mirror():
    store = PodStore()
    store.put(FROM_API)
    assert store.static_of("web_default") is None


def test_a_mirror_that_was_replaced_is_not_forgotten_with_the_old_one():
    store = PodStore()
    store.put_mirror(mirror("m1"))
    store.put_mirror(mirror("m2"))
    store.remove_mirror(mirror("m1"))
    assert [each.metadata.uid for each in store.mirrors()] == ["m2"]
    store.remove_mirror(mirror("m2"))
    assert store.mirrors() == ()


def test_every_change_is_reported_by_name():
    store = PodStore()
    with store.changes() as changes:
        store.put(STATIC)
        store.put_mirror(mirror("m1"))
        store.remove_mirror(mirror("m1"))
        store.remove("static")
        store.remove("static")
        assert changes.drain() == ["web_default"] * 4
