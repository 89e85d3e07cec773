import pytest

from klet.api.validation.options import PodValidationOptions
from klet.api.validation.resize import validate_pod_resize

MIRROR = "kubernetes.io/config.mirror"
ONLY = "spec: Forbidden: only cpu and memory resources are mutable"
C = "spec.containers[0].resources"
I = "spec.initContainers[0].resources"  # noqa: E741  # reads as its first letter
SMALL = {"requests": {"cpu": "1", "memory": "1Gi"}}
BIG = {"requests": {"cpu": "2", "memory": "2Gi"}}


def resources(amounts, **fields):
    return {"containers": [{"name": "c", "image": "i:1", "resources": amounts, **fields}]}


def init(amounts, policy="Always"):
    container = {"name": "s", "image": "i", "resources": amounts}
    return {"initContainers": [container | ({"restartPolicy": policy} if policy else {})]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(resources(SMALL), resources(BIG), [], id="cpu and memory"),
        pytest.param(resources(SMALL), resources(SMALL | {"limits": {"cpu": "4"}}), [], id="a new limit"),
        pytest.param(init(SMALL), init(BIG), [], id="a sidecar"),
        pytest.param(
            resources({"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}),
            resources({"requests": {"cpu": "1", "ephemeral-storage": "2Gi"}}),
            [ONLY],
            id="storage",
        ),
        pytest.param(
            resources(SMALL),
            resources(SMALL, resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
            [ONLY],
            id="the resize policy",
        ),
        pytest.param(resources(SMALL), resources(SMALL) | {"hostname": "x"}, [ONLY], id="something else"),
        pytest.param(
            init({"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}),
            init({"requests": {"cpu": "1", "ephemeral-storage": "2Gi"}}),
            ["spec: Forbidden: only cpu and memory resources for sidecar containers are mutable"],
            id="storage of a sidecar",
        ),
        pytest.param(
            init(SMALL, None),
            init(BIG, None),
            ["spec: Forbidden: resources for non-sidecar init containers are immutable"],
            id="a plain init container",
        ),
        pytest.param(
            resources({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
            resources({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
            ['spec: Invalid value: "": Pod QOS Class may not change as a result of resizing'],
            id="the quality of service",
        ),
        pytest.param(
            resources(SMALL | {"limits": {"cpu": "2"}}),
            resources({"requests": {"cpu": "1"}}),
            [
                f"{C}.requests: Forbidden: resource requests cannot be removed",
                f"{C}.limits: Forbidden: resource limits cannot be removed",
            ],
            id="amounts go",
        ),
        pytest.param(
            init(SMALL),
            init({"requests": {"cpu": "1"}}),
            [f"{I}.requests: Forbidden: resource requests cannot be removed"],
            id="amounts of a sidecar go",
        ),
        pytest.param(
            resources(SMALL),
            {"containers": [{"name": "d", "image": "i:1", "resources": SMALL}]},
            ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"],
            id="another name",
        ),
        pytest.param(
            init(SMALL),
            {},
            ["spec.initContainers: Forbidden: containers may not be added or removed on resize"],
            id="a container goes",
        ),
        pytest.param(
            resources(SMALL),
            resources({"requests": {"cpu": "-1", "memory": "1Gi"}}),
            [f'{C}.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
            id="the new amounts are checked",
        ),
        pytest.param(
            {"resources": SMALL},
            {"resources": BIG},
            [": Forbidden: pods with pod-level resources cannot be resized"],
            id="pod-level resources",
        ),
        pytest.param(
            {"os": {"name": "windows"}},
            {"os": {"name": "windows"}},
            [": Forbidden: windows pods cannot be resized"],
            id="windows",
        ),
    ],
)
def test_resize(make_pod, old, new, expected):
    found = validate_pod_resize(make_pod({"spec": new}), make_pod({"spec": old}))
    assert [str(error) for error in found] == expected


def test_the_class_that_may_not_change_is_shown(make_pod):
    status = {"status": {"qosClass": "Burstable"}}
    amounts = {"cpu": "1", "memory": "1Gi"}
    old = make_pod({"spec": resources({"requests": amounts})} | status)
    new = make_pod({"spec": resources({"requests": amounts, "limits": amounts})} | status)
    assert [str(error) for error in validate_pod_resize(new, old)] == [
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'
    ]


def test_pod_level_resources_can_be_resized_behind_a_gate(make_pod):
    old, new = make_pod({"spec": {"resources": SMALL}}), make_pod({"spec": {"resources": BIG}})
    assert validate_pod_resize(new, old, PodValidationOptions(pod_level_resize=True)) == ()


def test_static_pods_cannot_be_resized(make_pod):
    mirror = make_pod({"metadata": {"annotations": {MIRROR: "x"}}, "spec": {"nodeName": "n"}})
    assert [str(error) for error in validate_pod_resize(mirror, mirror)] == [
        ": Forbidden: static pods cannot be resized"
    ]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        pytest.param([{"name": "c", "state": {"running": {}}, "resources": {}}], [], id="resources are reported"),
        pytest.param(
            [{"name": "c", "state": {"running": {}}}],
            ["spec: Forbidden: Pod running on node without support for resize"],
            id="resources are not reported",
        ),
        pytest.param([{"name": "c", "state": {"waiting": {}}}], [], id="nothing runs yet"),
    ],
)
def test_the_node_must_be_able_to_resize(make_pod, statuses, expected):
    old = make_pod({"spec": resources(SMALL), "status": {"containerStatuses": statuses}})
    new = make_pod({"spec": resources(BIG), "status": {"containerStatuses": statuses}})
    assert [str(error) for error in validate_pod_resize(new, old)] == expected
