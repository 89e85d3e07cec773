import pytest
from msgspec.structs import replace

from klet.api.codec import convert
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.pod import Pod, PodStatus
from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.api.service import Service
from klet.model.objects import ObjectKind, ObjectRef
from klet.model.pods import uid_of
from klet.offline.plan import Urgency, choose_pods, choose_services, compare_pods, find_objects, lasting_node
from klet.testing.builders import make_pod

POD = make_pod(name="p", uid="u")
RUNNING = replace(POD, status=PodStatus(phase="Running"))


def meta(pod, **fields):
    return replace(pod, metadata=replace(pod.metadata, **fields))


@pytest.mark.parametrize(
    ("kept", "pods", "urgency"),
    [
        pytest.param([], [], Urgency.NEVER, id="nothing was there and nothing is"),
        pytest.param([POD], [POD], Urgency.NEVER, id="nothing has changed"),
        pytest.param([], [POD], Urgency.BEFORE_ACTING, id="a pod is new"),
        pytest.param([POD], [], Urgency.BEFORE_ACTING, id="a pod is gone"),
        pytest.param([POD], [meta(POD, uid="v")], Urgency.BEFORE_ACTING, id="another pod has its name"),
        pytest.param([POD], [make_pod("other", name="p", uid="u")], Urgency.BEFORE_ACTING, id="another spec"),
        pytest.param([POD], [meta(POD, labels={"a": "b"})], Urgency.BEFORE_ACTING, id="another label"),
        pytest.param([POD], [meta(POD, deletion_grace_period_seconds=5)], Urgency.BEFORE_ACTING, id="to be deleted"),
        pytest.param([POD], [meta(POD, resource_version="7")], Urgency.NEVER, id="only another version"),
        pytest.param([POD], [RUNNING], Urgency.SOON, id="only its status is another"),
        pytest.param(
            [RUNNING], [replace(POD, status=PodStatus(phase="Succeeded"))], Urgency.BEFORE_ACTING, id="it is over"
        ),
        pytest.param(
            [replace(POD, status=PodStatus(phase="Failed"))],
            [replace(POD, status=PodStatus(phase="Failed", message="again"))],
            Urgency.SOON,
            id="it was over before",
        ),
    ],
)
def test_how_urgent_it_is_to_write(kept, pods, urgency):
    assert compare_pods({uid_of(pod): pod for pod in kept}, pods) is urgency


def test_static_pods_and_their_mirrors_have_a_manifest_of_their_own():
    mirror = meta(make_pod(name="m"), annotations={MIRROR_ANNOTATION: "h"})
    assert choose_pods([POD, mirror, make_pod(name="s", source="file")]) == (POD,)


def test_the_objects_of_pods():
    spec = {
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "env"}}]}],
        "volumes": [{"name": "v", "secret": {"secretName": "cert"}}, {"name": "w", "configMap": {"name": "cfg"}}],
    }
    pod = convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})
    assert find_objects([pod, POD]) == {
        ObjectRef(ObjectKind.SECRET, "ns", "registry"),
        ObjectRef(ObjectKind.SECRET, "ns", "cert"),
        ObjectRef(ObjectKind.CONFIG_MAP, "ns", "env"),
        ObjectRef(ObjectKind.CONFIG_MAP, "ns", "cfg"),
    }


def test_the_services_in_the_environment_of_containers():
    places = [("default", "kubernetes"), ("default", "web"), ("far", "db"), ("default", "mail")]
    services = [Service(metadata=ObjectMeta(namespace=namespace, name=name)) for namespace, name in places]
    assert [each.metadata.name for each in choose_services(services, [])] == ["kubernetes"]
    assert [each.metadata.name for each in choose_services(services, [POD])] == ["kubernetes", "web", "mail"]


def test_heartbeats_change_nothing_of_a_node():
    node = convert(Node, {"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {"podCIDR": "10.0.0.0/24"}})
    beaten = convert(
        Node,
        {
            "metadata": {"name": "n", "labels": {"zone": "a"}, "resourceVersion": "9"},
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": [{"sizeBytes": 1}]},
        },
    )
    assert lasting_node(beaten) == lasting_node(node)
    assert lasting_node(replace(node, spec=replace(node.spec, pod_cidr="10.1.0.0/24"))) != lasting_node(node)
