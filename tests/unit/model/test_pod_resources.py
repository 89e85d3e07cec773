"""What a pod has been given as a whole."""

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.model.allocation import desired_allocation
from klet.model.pod_resources import (
    compute_pod_limits,
    compute_pod_requests,
    compute_resource_request,
    has_pod_level_resources,
    hugepage_amounts,
    is_limited,
    memory_bytes,
    millicpu,
)


def container(requests=None, limits=None, *, sidecar=False, name="c"):
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **policy}


def cpu(amount, *, sidecar=False):
    return container({"cpu": amount}, {"cpu": amount}, sidecar=sidecar)


def pod(*containers, init=(), **spec):
    return desired_allocation(
        convert(Pod, {"spec": {"containers": list(containers), "initContainers": list(init), **spec}})
    )


def texts(resources):
    return {name: str(amount) for name, amount in resources.items()}


EXAMPLE = {"init": [cpu("2"), cpu("1", sidecar=True), cpu("3")]}
ONES = (cpu("1"), cpu("1"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(), {}, id="nothing"),
        pytest.param(pod(*ONES), {"cpu": "2"}, id="containers add up"),
        pytest.param(pod(*ONES, **EXAMPLE), {"cpu": "4"}, id="an init container beside a sidecar is the peak"),
        pytest.param(
            pod(*ONES, **EXAMPLE, resources={"requests": {"cpu": "6"}}), {"cpu": "6"}, id="the pod's own request counts"
        ),
        pytest.param(
            pod(*ONES, **EXAMPLE, resources={"requests": {"cpu": "1"}}),
            {"cpu": "1"},
            id="the pod's own request counts though it is smaller",
        ),
        pytest.param(
            pod(*ONES, **EXAMPLE, resources={"requests": {"cpu": "6"}}, overhead={"cpu": "250m"}),
            {"cpu": "6250m"},
            id="overhead comes on top",
        ),
        pytest.param(pod(cpu("1"), overhead={"memory": "1Mi"}), {"cpu": "1", "memory": "1Mi"}, id="overhead alone"),
        pytest.param(
            pod(container({"cpu": "1", "memory": "2Mi"}), resources={"requests": {"memory": "1Mi"}}),
            {"cpu": "1", "memory": "1Mi"},
            id="what the pod does not name is summed",
        ),
        pytest.param(
            pod(container({"ephemeral-storage": "1"}), resources={"requests": {"ephemeral-storage": "9"}}),
            {"ephemeral-storage": "1"},
            id="a pod cannot ask for disk as a whole",
        ),
        pytest.param(
            pod(container({"hugepages-2Mi": "2Mi"}), resources={"requests": {"hugepages-2Mi": "4Mi"}}),
            {"hugepages-2Mi": "4Mi"},
            id="a pod can ask for huge pages",
        ),
        pytest.param(
            pod(cpu("1"), resources={"limits": {"cpu": "6"}}), {"cpu": "1"}, id="the pod's limit is no request"
        ),
    ],
)
def test_requests(given, expected):
    assert texts(compute_pod_requests(given)) == expected


def test_requests_without_overhead():
    assert texts(compute_pod_requests(pod(cpu("1"), overhead={"cpu": "1"}), with_overhead=False)) == {"cpu": "1"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(*ONES, **EXAMPLE), {"cpu": "4"}, id="aggregated like requests"),
        pytest.param(
            pod(container({"cpu": "9"}), resources={"limits": {"memory": "1Mi"}}), {"memory": "1Mi"}, id="the pod's own"
        ),
        pytest.param(pod(cpu("1"), resources={"limits": {"cpu": "3"}}), {"cpu": "3"}, id="the pod's own replaces"),
        pytest.param(pod(cpu("1"), overhead={"cpu": "1", "memory": "1"}), {"cpu": "2"}, id="overhead makes no limit"),
        pytest.param(pod(cpu("0"), overhead={"cpu": "1"}), {"cpu": "0"}, id="nor does it raise one of zero"),
    ],
)
def test_limits(given, expected):
    assert texts(compute_pod_limits(given)) == expected


def test_limits_without_overhead():
    assert texts(compute_pod_limits(pod(cpu("1"), overhead={"cpu": "1"}), with_overhead=False)) == {"cpu": "1"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({}, False, id="empty"),
        pytest.param({"requests": {"cpu": "1"}}, True, id="a request"),
        pytest.param({"limits": {"hugepages-2Mi": "2Mi"}}, True, id="a limit"),
        pytest.param({"limits": {"ephemeral-storage": "1"}}, False, id="a resource that cannot stand there"),
    ],
)
def test_pod_level_resources(resources, expected):
    assert has_pod_level_resources(pod(resources=resources)) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(cpu("1"), cpu("2")), True, id="every container"),
        pytest.param(pod(cpu("1"), container()), False, id="all but one"),
        pytest.param(pod(cpu("1"), cpu("0")), False, id="zero is no limit"),
        pytest.param(pod(cpu("1"), init=[container()]), False, id="an init container without"),
        pytest.param(
            pod(cpu("1"), init=[cpu("1", sidecar=True), container()]), True, id="a sidecar covers what comes after it"
        ),
        pytest.param(
            pod(cpu("1"), init=[container(), cpu("1", sidecar=True)]), False, id="but not what came before it"
        ),
        pytest.param(pod(container(), resources={"limits": {"cpu": "1"}}), True, id="the pod has one"),
        pytest.param(pod(container(), resources={"limits": {"cpu": "0"}}), False, id="the pod's is zero"),
    ],
)
def test_whether_a_pod_is_limited(given, expected):
    assert is_limited(given, "cpu") is expected


@pytest.mark.parametrize(
    ("given", "resource", "expected"),
    [
        pytest.param(pod(), "pods", 1, id="a pod is one pod"),
        pytest.param(pod(cpu("1500m")), "cpu", 1500, id="CPU in thousandths"),
        pytest.param(pod(container({"memory": "1Ki"})), "memory", 1024, id="memory in bytes"),
        pytest.param(pod(cpu("1"), overhead={"cpu": "1"}), "cpu", 2000, id="overhead is added"),
        pytest.param(pod(overhead={"cpu": "1"}), "cpu", 0, id="but not to nothing"),
        pytest.param(
            pod(container({"ephemeral-storage": "5"}), resources={"limits": {"cpu": "1"}}),
            "ephemeral-storage",
            0,
            id="with pod-level resources containers do not count",
        ),
        pytest.param(pod(cpu("1"), resources={"requests": {"cpu": "3"}}), "cpu", 3000, id="the pod's own"),
        pytest.param(pod(cpu("1"), resources={}), "cpu", 1000, id="empty pod-level resources are none"),
    ],
)
def test_request_of_one_resource(given, resource, expected):
    assert compute_resource_request(given, resource) == expected


def test_amounts():
    resources = compute_pod_requests(
        pod(container({"cpu": "1500m", "memory": "1.5", "hugepages-2Mi": "4Mi", "hugepages-2048Ki": "2Mi"}))
    )
    assert (millicpu(resources), memory_bytes(resources)) == (1500, 2)
    assert (millicpu({}), memory_bytes({})) == (0, 0)
    assert hugepage_amounts(resources) == {2 << 20: 6 << 20}
