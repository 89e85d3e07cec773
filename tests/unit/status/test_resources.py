"""The resources that a container is reported with."""

import pytest
from msgspec.structs import replace

from klet.api.container import ResourceRequirements
from klet.api.container_status import ContainerState as Shown
from klet.api.container_status import ContainerStateRunning, ContainerStatus
from klet.api.quantity import Quantity
from klet.model.allocation import Actuated, ContainerAllocation, PodAllocation, PodResources
from klet.model.runtime import ContainerRecord, GivenResources, RuntimeContainerState
from klet.status.resources import build_resources
from klet.testing.builders import make_pod, make_record


def resources(text: str) -> ResourceRequirements:
    """`limits.cpu=1 requests.memory=1Mi`"""
    found: dict[str, dict[str, Quantity]] = {"limits": {}, "requests": {}}
    for part in text.split():
        name, _, amount = part.partition("=")
        kind, _, resource = name.partition(".")
        found[kind][resource] = Quantity.parse(amount)
    return ResourceRequirements(**found)


def texts(found: ResourceRequirements) -> str:
    every = [("limits", found.limits), ("requests", found.requests)]
    return " ".join(f"{kind}.{name}={amount}" for kind, given in every for name, amount in sorted(given.items()))


def reported(text: str, *, container: str = "main-0", running: bool = True) -> ContainerStatus:
    state = Shown(running=ContainerStateRunning()) if running else Shown()
    return ContainerStatus(
        name="main", container_id=f"containerd://{container}", state=state, resources=resources(text)
    )


def running(
    admitted: str, actual: GivenResources | None, *, actuated: str = ""
) -> tuple[ContainerRecord, PodResources]:
    """A container that runs, whose spec names no resources, and what is known of its resources."""
    known = PodResources(
        admitted=PodAllocation(containers=(ContainerAllocation(name="main", given=resources(admitted)),)),
        actuated=Actuated(containers={"main": resources(actuated)}) if actuated else Actuated(),
        actual={"main": actual} if actual is not None else {},
    )
    return make_record(make_pod("main"), "main"), known


BOTH = "limits.cpu=1 limits.memory=64Mi requests.cpu=100m requests.memory=32Mi"


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        pytest.param(BOTH, None, BOTH, id="a runtime that says nothing"),
        pytest.param(
            BOTH,
            GivenResources(cpu_limit=500, cpu_request=50, memory_limit=16 << 20),
            "limits.cpu=500m limits.memory=16Mi requests.cpu=50m requests.memory=32Mi",
            id="what it says counts, but it never says the request of memory",
        ),
        pytest.param("", GivenResources(cpu_limit=500, cpu_request=50), "", id="nothing is added to a bare container"),
        pytest.param(
            "limits.memory=1Mi",
            GivenResources(cpu_limit=500, cpu_request=50, memory_limit=1 << 20),
            "limits.cpu=500m limits.memory=1Mi",
            id="nor to a part that the spec leaves out",
        ),
        pytest.param(
            "requests.cpu=1m", GivenResources(cpu_request=2), "requests.cpu=1m", id="less than the kernel takes"
        ),
        pytest.param("requests.cpu=3m", GivenResources(cpu_request=2), "requests.cpu=2m", id="more was asked for"),
        pytest.param("requests.cpu=1m", GivenResources(cpu_request=3), "requests.cpu=3m", id="more was given"),
        pytest.param("limits.cpu=5m", GivenResources(cpu_limit=10), "limits.cpu=5m", id="a tiny limit"),
        pytest.param("limits.cpu=11m", GivenResources(cpu_limit=10), "limits.cpu=10m", id="a larger limit"),
        pytest.param("limits.cpu=5m", GivenResources(cpu_limit=11), "limits.cpu=11m", id="a larger limit was given"),
        pytest.param(
            "limits.example.com/gpu=1 requests.example.com/gpu=1",
            GivenResources(cpu_request=2),
            "limits.example.com/gpu=1 requests.example.com/gpu=1",
            id="other resources stay as they are",
        ),
    ],
)
def test_a_running_container(spec, given, expected):
    record, known = running(spec, given)
    assert texts(build_resources(known, record, None)) == expected


OTHER = "limits.cpu=2 limits.memory=1Mi requests.cpu=20m requests.memory=2Mi"


@pytest.mark.parametrize(
    ("previous", "given", "expected"),
    [
        pytest.param(reported(OTHER), None, OTHER, id="what was reported of it stays"),
        pytest.param(
            reported(OTHER),
            GivenResources(cpu_limit=3000, cpu_request=30, memory_limit=3 << 20),
            "limits.cpu=3 limits.memory=3Mi requests.cpu=30m requests.memory=2Mi",
            id="the runtime knows better",
        ),
        pytest.param(reported(OTHER, container="main-9"), None, BOTH, id="another instance was reported"),
        pytest.param(reported(OTHER, running=False), None, BOTH, id="it was not running then"),
        pytest.param(ContainerStatus(name="main"), None, BOTH, id="nothing was reported"),
    ],
)
def test_what_was_reported_before(previous, given, expected):
    record, known = running(BOTH, given)
    assert texts(build_resources(known, record, previous)) == expected


@pytest.mark.parametrize(
    "state", [RuntimeContainerState.EXITED, RuntimeContainerState.CREATED, RuntimeContainerState.UNKNOWN]
)
def test_a_container_that_does_not_run_is_reported_with_what_it_would_get(state):
    record, known = running(BOTH, GivenResources(cpu_limit=1))
    record = replace(record, state=state)
    assert build_resources(known, record, reported(OTHER)) == resources(BOTH)


@pytest.mark.parametrize(
    ("actuated", "previous", "expected"),
    [
        pytest.param("requests.memory=8Mi", None, "8Mi", id="what it was created with counts"),
        pytest.param("requests.memory=8Mi", reported(OTHER), "8Mi", id="before what was reported"),
        pytest.param("requests.cpu=1", reported(OTHER), "2Mi", id="it was created without one"),
        pytest.param("", None, "32Mi", id="nobody knows: what was admitted"),
    ],
)
def test_the_request_of_memory_that_no_runtime_reports(actuated, previous, expected):
    record, known = running(BOTH, None, actuated=actuated)
    assert str(build_resources(known, record, previous).requests["memory"]) == expected
