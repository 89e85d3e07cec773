"""What a pod has been given, as a value."""

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.model.allocation import NOTHING, ContainerAllocation, PodAllocation, desired_allocation

POD = convert(
    Pod,
    {
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}, {"name": "bare"}],
            "initContainers": [
                {"name": "setup", "resources": {"limits": {"memory": "1Mi"}}},
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
            ],
            "ephemeralContainers": [{"name": "debug", "resources": {"requests": {"cpu": "9"}}}],
            "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "1Gi"}},
            "overhead": {"cpu": "250m"},
        }
    },
)


def test_what_a_spec_asks_for():
    spec = POD.spec
    assert desired_allocation(POD) == PodAllocation(
        containers=(
            ContainerAllocation(name="main", given=spec.containers[0].resources),
            ContainerAllocation(name="bare"),
        ),
        init_containers=(
            ContainerAllocation(name="setup", given=spec.init_containers[0].resources),
            ContainerAllocation(name="side", given=spec.init_containers[1].resources, is_sidecar=True),
        ),
        pod_level=spec.resources,
        overhead=spec.overhead,
    )


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param("main", POD.spec.containers[0].resources, id="a regular container"),
        pytest.param("bare", NOTHING, id="one that asks for nothing"),
        pytest.param("setup", POD.spec.init_containers[0].resources, id="an init container"),
        pytest.param("side", POD.spec.init_containers[1].resources, id="a sidecar"),
        pytest.param("debug", NOTHING, id="an ephemeral container is given nothing, whatever it asks for"),
    ],
)
def test_what_a_container_was_given(container, expected):
    assert desired_allocation(POD).of(container) == expected


def test_the_pod_as_a_whole():
    given = desired_allocation(POD)
    assert {name: str(amount) for name, amount in given.pod_requests.items()} == {"cpu": "4"}
    assert {name: str(amount) for name, amount in given.pod_limits.items()} == {"memory": "1Gi"}
    assert (PodAllocation().pod_requests, PodAllocation().pod_limits) == ({}, {})
