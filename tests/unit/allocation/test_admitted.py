"""Which resources a pod is admitted with, and what its spec wants besides."""

import pytest
from msgspec.structs import replace

from klet.allocation.admitted import compute_admitted, find_resized
from klet.api.container import ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.pod import PodStatus
from klet.api.quantity import Quantity
from klet.model.allocation import PodAllocation, desired_allocation
from klet.testing.builders import make_container, make_pod, with_resources

SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
LARGE = {"requests": {"cpu": "300m", "memory": "96Mi"}, "limits": {"cpu": "400m", "memory": "256Mi"}}


def container(name="main", *, resources, **options):
    return with_resources(make_container(name, **options), **resources)


MAIN_SMALL, MAIN_LARGE = container(resources=SMALL), container(resources=LARGE)
SIDE_SMALL, SIDE_LARGE = (container("side", resources=each, restart_policy="Always") for each in (SMALL, LARGE))


def amounts(**given):
    return {name: Quantity.parse(text) for name, text in given.items()}


def reported(name="main", *, allocated, **resources):
    """A status as klet reports it."""
    return ContainerStatus(
        name=name, allocated_resources=amounts(**allocated), resources=ResourceRequirements(**resources)
    )


def with_status(pod, *statuses, generation=2):
    status = PodStatus(phase="Running", container_statuses=statuses)
    return replace(pod, metadata=replace(pod.metadata, generation=generation), status=status)


def resources_of(pod):
    return pod.spec.containers[0].resources


def admitted(pod):
    return compute_admitted(pod).of("main")


def test_a_new_pod_is_given_what_its_spec_asks_for():
    pod = make_pod(container(resources=LARGE), init=[container("side", resources=SMALL, restart_policy="Always")])
    assert compute_admitted(pod) == desired_allocation(pod)


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        pytest.param(make_pod(MAIN_SMALL), make_pod(MAIN_SMALL), (), id="nothing has changed"),
        pytest.param(make_pod(MAIN_LARGE), make_pod(MAIN_SMALL), ("main",), id="a regular container"),
        pytest.param(make_pod(init=[SIDE_LARGE]), make_pod(init=[SIDE_SMALL]), ("side",), id="a sidecar"),
        pytest.param(make_pod(MAIN_SMALL, SIDE_SMALL), make_pod(MAIN_SMALL), (), id="one that nothing is known of"),
        pytest.param(make_pod(MAIN_SMALL), make_pod(MAIN_SMALL, SIDE_SMALL), (), id="one that the spec has lost"),
    ],
)
def test_what_is_wanted_besides(wanted, given, expected):
    assert find_resized(wanted, desired_allocation(given)) == expected


def test_the_same_amount_in_other_words_is_no_resize():
    same = {
        "requests": {"cpu": "0.1", "memory": "65536Ki"},
        "limits": {"cpu": "0.2", "memory": "131072Ki"},
    }
    assert find_resized(make_pod(container(resources=same)), desired_allocation(make_pod(MAIN_SMALL))) == ()


def test_nothing_was_given_before_admission():
    assert find_resized(make_pod(MAIN_LARGE), PodAllocation()) == ()


def test_a_static_pod_is_as_its_manifest_says():
    pod = with_status(make_pod(MAIN_LARGE, source="file"), reported(allocated=SMALL["requests"]))
    assert admitted(pod) == resources_of(pod)


def test_after_a_restart_the_reported_status_says_what_was_admitted():
    small = resources_of(make_pod(container(resources=SMALL)))
    pod = with_status(
        make_pod(container(resources=LARGE)),
        reported(allocated=SMALL["requests"], requests=small.requests, limits=small.limits),
    )
    assert admitted(pod) == small


def test_what_another_kubelet_runs_a_pod_with_was_admitted():
    running = reported(allocated={}, requests=amounts(**SMALL["requests"]), limits=amounts(**SMALL["limits"]))
    assert admitted(with_status(make_pod(container(resources=LARGE)), running)) == resources_of(
        make_pod(container(resources=SMALL))
    )


def test_the_spec_of_a_pod_that_never_changed_is_exact():
    pod = with_status(
        make_pod(container(resources=SMALL)),
        reported(allocated=SMALL["requests"], limits=amounts(cpu="1", memory="128Mi")),
        generation=1,
    )
    assert compute_admitted(pod) == desired_allocation(pod)


def test_an_amount_that_came_with_the_resize_was_not_admitted():
    pod = with_status(
        make_pod(container(resources=LARGE)),
        reported(allocated={"cpu": "100m"}, requests=amounts(cpu="100m"), limits={}),
    )
    kept = admitted(pod)
    assert (kept.requests, kept.limits) == (amounts(cpu="100m"), {})


def test_what_only_the_runtime_says_was_not_admitted():
    pod = with_status(
        make_pod(container(resources={"limits": {"memory": "128Mi"}})),
        reported(allocated={}, limits=amounts(cpu="4", memory="128Mi")),
    )
    assert compute_admitted(pod) == desired_allocation(pod)


def test_other_resources_than_cpu_and_memory_never_change():
    wanted = {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    pod = with_status(
        make_pod(container(resources=wanted)), reported(allocated={"cpu": "500m"}, requests=amounts(cpu="500m"))
    )
    kept = admitted(pod)
    assert kept.requests == amounts(cpu="500m", **{"example.com/gpu": "1"})
    assert kept.limits == amounts(**{"example.com/gpu": "1"})


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(ContainerStatus(name="main"), id="one that says nothing of resources"),
        pytest.param(reported("other", allocated={}), id="that of another container"),
    ],
)
def test_a_status_that_does_not_say_leaves_the_spec(status):
    pod = with_status(make_pod(container(resources=LARGE)), status)
    assert compute_admitted(pod) == desired_allocation(pod)


def test_a_sidecar_too_keeps_what_was_reported():
    side = reported("side", allocated=SMALL["requests"], limits=amounts(**SMALL["limits"]))
    pod = make_pod(init=[SIDE_LARGE])
    status = PodStatus(phase="Running", init_container_statuses=(side,))
    pod = replace(pod, metadata=replace(pod.metadata, generation=2), status=status)
    assert compute_admitted(pod).of("side") == SIDE_SMALL.resources


def test_a_plain_init_container_is_never_resized():
    plain = container("setup", resources=LARGE)
    known = reported("setup", allocated=SMALL["requests"], limits=amounts(**SMALL["limits"]))
    pod = make_pod(init=[plain])
    status = PodStatus(phase="Running", init_container_statuses=(known,))
    pod = replace(pod, metadata=replace(pod.metadata, generation=2), status=status)
    assert compute_admitted(pod).of("setup") == plain.resources
