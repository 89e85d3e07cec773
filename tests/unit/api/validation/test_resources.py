import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
[NAME_PART] = formats.label_key("-a")
R = "spec.containers[0].resources"
P = "spec.resources"
FULLY = "must be a standard resource type or fully qualified"
CONTAINERS = "must be a standard resource for containers"
HUGE = "Limit must be set for non overcommitable resources"
CLAIMS = "must be one of the names in pod.spec.resourceClaims"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "a.b/gpu": "2"}}, [], id="good"
        ),
        pytest.param(
            {"limits": {"-a": "1"}},
            [
                f'{R}.{kind}[-a]: Invalid value: "-a": {text}'
                for kind in ("limits", "requests")
                for text in (NAME_PART, CONTAINERS)
            ],
            id="a name that is no name, copied to the requests",
        ),
        pytest.param(
            {"requests": {"x": "1"}},
            [f'{R}.requests[x]: Invalid value: "x": {FULLY}', f'{R}.requests[x]: Invalid value: "x": {CONTAINERS}'],
            id="an unknown short name",
        ),
        pytest.param(
            {"requests": {"storage": "1"}},
            [f'{R}.requests[storage]: Invalid value: "storage": {CONTAINERS}'],
            id="a claim's name",
        ),
        pytest.param(
            {"limits": {"a/" + "x" * 60: "1"}, "requests": {"a/" + "x" * 60: "1"}},
            [],
            id="an extended name of 60 bytes",
        ),
        pytest.param(
            {"requests": {"requests.a/b": "1"}, "limits": {"requests.a/b": "1"}},
            [
                (
                    f'{R}.{kind}[requests.a/b]: Invalid value: "requests.a/b": doesn\'t follow '
                    "extended resource name standard"
                )
                for kind in ("limits", "requests")
            ],
            id="an extended name that looks like a quota",
        ),
        pytest.param({"requests": {"kubernetes.io/x": "1"}}, [], id="a native name with a prefix"),
        pytest.param(
            {"requests": {"cpu": "-1"}},
            [f'{R}.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
            id="a negative amount",
        ),
        pytest.param(
            {"limits": {"a.b/gpu": "1500m"}},
            [f'{R}.{kind}[a.b/gpu]: Invalid value: "1500m": must be an integer' for kind in ("limits", "requests")],
            id="part of an extended resource",
        ),
        pytest.param(
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            [f'{R}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="more than the limit",
        ),
        pytest.param(
            {"requests": {"a.b/gpu": "1"}, "limits": {"a.b/gpu": "2"}},
            [f'{R}.requests: Invalid value: "1": must be equal to a.b/gpu limit of 2'],
            id="extended resources are not overcommitted",
        ),
        pytest.param(
            {"requests": {"a.b/gpu": "1"}},
            [f"{R}.limits: Required value: {HUGE}"],
            id="extended resources need a limit",
        ),
        pytest.param({"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}, [], id="huge pages next to memory"),
        pytest.param(
            {"limits": {"hugepages-2Mi": "4Mi"}},
            [f"{R}: Forbidden: HugePages require cpu or memory"],
            id="huge pages alone",
        ),
        pytest.param(
            {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}},
            [
                (
                    f'{R}.{kind}[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer '
                    "multiple of hugepages-2Mi"
                )
                for kind in ("limits", "requests")
            ],
            id="one and a half huge pages",
        ),
        pytest.param(
            {"limits": {"hugepages-x": "2Mi", "cpu": "1"}, "requests": {"hugepages-x": "2Mi"}},
            [
                f'{R}.{kind}[hugepages-x]: Invalid value: "2Mi": 2Mi is not positive integer multiple of hugepages-x'
                for kind in ("limits", "requests")
            ],
            id="huge pages of no size",
        ),
        pytest.param(
            {"claims": [{"name": ""}, {"name": "x"}]},
            [f"{R}.claims[0]: Required value", f'{R}.claims[1]: Not found: "x": {CLAIMS} which is empty'],
            id="claims of a pod without any",
        ),
    ],
)
def test_container_resources(container_errors, resources, expected):
    assert container_errors({"resources": resources}) == expected


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}, {"name": "b"}], [], id="good"),
        pytest.param([{"name": "a"}, {"name": "a"}], [f'{R}.claims[1]: Duplicate value: "a"'], id="a claim twice"),
        pytest.param(
            [{"name": "a", "request": "x"}] * 2, [f'{R}.claims[1]: Duplicate value: "a/x"'], id="a request twice"
        ),
        pytest.param(
            [{"name": "a", "request": "x"}, {"name": "a"}],
            [f'{R}.claims[1]: Duplicate value: "a"'],
            id="a claim after its request",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "a", "request": "x"}],
            [f'{R}.claims[1]: Duplicate value: "a"'],
            id="a request after its claim",
        ),
        pytest.param(
            [{"name": "a", "request": "A"}],
            [f'{R}.claims[0].request: Invalid value: "A": {LABEL}'],
            id="a request is a label",
        ),
        pytest.param([{"name": "x"}], [f'{R}.claims[0]: Not found: "x": {CLAIMS}: a, b'], id="a claim the pod lacks"),
    ],
)
def test_container_claims(container_errors, claims, expected):
    known = [{"name": name, "resourceClaimName": name} for name in "ba"]
    assert container_errors({"resources": {"claims": claims}}, {"resourceClaims": known}) == expected


@pytest.mark.parametrize(
    ("pod", "container", "expected"),
    [
        pytest.param({"limits": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, [], id="good"),
        pytest.param(
            {"claims": [{"name": "a"}]},
            {},
            [f"{P}.claims: Forbidden: claims may not be set for Resources at pod-level"],
            id="no claims at pod level",
        ),
        pytest.param(
            {"requests": {"ephemeral-storage": "1"}},
            {},
            [
                (
                    f'{P}.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: '
                    '"cpu", "hugepages-", "memory"'
                )
            ],
            id="only some resources at pod level",
        ),
        pytest.param(
            {"requests": {"x": "1"}}, {}, [f'{P}.requests[x]: Invalid value: "x": {FULLY}'], id="an unknown resource"
        ),
        pytest.param(
            {"requests": {"cpu": "1"}},
            {"requests": {"cpu": "2", "ephemeral-storage": "1Gi"}},
            [
                (
                    f'{P}.requests[cpu]: Invalid value: "1": must be greater than or equal to '
                    "aggregate container requests of 2"
                )
            ],
            id="less than the containers ask for",
        ),
        pytest.param(
            {"limits": {"cpu": "1"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
            [f'{P}.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1'],
            id="a container beyond the pod",
        ),
        pytest.param(
            {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}},
            {},
            [f'{P}.requests: Invalid value: "3": must be less than or equal to cpu limit of 2'],
            id="more than the limit",
        ),
    ],
)
def test_pod_level_resources(container_errors, pod, container, expected):
    assert container_errors({"resources": container}, {"resources": pod}) == expected


def test_overhead_is_checked_like_limits(errors_of):
    assert errors_of({"spec": {"overhead": {"cpu": "-1", "x": "1"}}}) == [
        'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        f'spec.overhead.limits[x]: Invalid value: "x": {FULLY}',
        f'spec.overhead.limits[x]: Invalid value: "x": {CONTAINERS}',
    ]
