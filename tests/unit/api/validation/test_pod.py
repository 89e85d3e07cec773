from klet.api.codec import convert
from klet.api.defaults import default_pod
from klet.api.pod import Pod
from klet.api.validation.options import STATIC_POD
from klet.api.validation.pod import validate_pod_create


def test_a_small_pod_is_valid(errors_of):
    assert errors_of({}) == []


def test_an_empty_pod_says_all_that_is_missing():
    found = [str(error) for error in validate_pod_create(default_pod(Pod()))]
    assert found == [
        "metadata.name: Required value: name or generateName is required",
        "metadata.namespace: Required value",
        "spec.containers: Required value",
    ]


def test_a_token_needs_an_account(errors_of):
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    assert errors_of({"spec": {"serviceAccountName": "", "volumes": [volume]}}) == [
        (
            "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: "
            "must not be specified when serviceAccountName is not set"
        )
    ]


def test_a_gated_pod_has_no_node(errors_of):
    assert errors_of({"spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}]}}) == [
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
    ]


def test_ephemeral_containers_come_later(errors_of):
    assert errors_of({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}) == [
        "spec.ephemeralContainers: Forbidden: cannot be set on create"
    ]


def test_errors_come_in_the_order_of_the_api_server(errors_of):
    found = errors_of(
        {
            "metadata": {"labels": {"-": "x"}},
            "spec": {
                "volumes": [{"name": "A"}],
                "containers": [{"name": "A", "image": "i"}],
                "initContainers": [{"name": "B", "image": "i"}],
                "restartPolicy": "x",
                "tolerations": [{"operator": "Equal"}],
                "nodeName": "A",
                "os": {"name": "x"},
            },
        }
    )
    assert [error.partition(": ")[0] for error in found] == [
        "metadata.labels",
        "spec.volumes[0].name",
        "spec.containers[0].name",
        "spec.initContainers[0].name",
        "spec.restartPolicy",
        "spec.nodeName",
        "spec.tolerations[0].operator",
        "spec.os",
    ]


def test_static_pods_have_their_own_options():
    manifest = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
    }
    assert validate_pod_create(default_pod(convert(Pod, manifest)), STATIC_POD) == ()
