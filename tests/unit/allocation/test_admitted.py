"""The resources that a pod was admitted with, whatever the API server says later."""

import pytest
from msgspec.structs import replace

from klet.allocation.admitted import find_resized, keep_admitted
from klet.api.container import ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.pod import PodStatus
from klet.api.quantity import Quantity
from klet.testing.builders import make_container, make_pod, with_resources

SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
LARGE = {"requests": {"cpu": "300m", "memory": "96Mi"}, "limits": {"cpu": "400m", "memory": "256Mi"}}


def container(name="main", *, resources, **options):
    return with_resources(make_container(name, **options), **resources)


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


def test_the_resources_of_a_new_pod_are_those_of_its_spec():
    pod = make_pod(container(resources=LARGE))
    assert keep_admitted(pod, None) is pod


def test_a_known_pod_keeps_what_it_was_admitted_with_and_takes_the_rest():
    known = make_pod(container(resources=SMALL))
    changed = make_pod(container(resources=LARGE, image="other:2"))
    kept = keep_admitted(changed, known)
    assert resources_of(kept) == resources_of(known)
    assert kept.spec.containers[0].image == "other:2"
    assert find_resized(changed, kept) == ("main",)
    assert find_resized(known, kept) == ()


def test_so_do_sidecars():
    known = make_pod(init=[container("side", resources=SMALL, restart_policy="Always")])
    changed = make_pod(init=[container("side", resources=LARGE, restart_policy="Always")])
    kept = keep_admitted(changed, known)
    assert kept.spec.init_containers == known.spec.init_containers
    assert find_resized(changed, kept) == ("side",)


def test_a_pod_that_has_not_changed_is_the_same():
    pod = make_pod(container(resources=SMALL))
    assert keep_admitted(pod, pod) is pod


def test_a_static_pod_is_as_its_manifest_says():
    known = make_pod(container(resources=SMALL), source="file")
    changed = make_pod(container(resources=LARGE), source="file")
    assert keep_admitted(changed, known) is changed


def test_after_a_restart_the_reported_status_says_what_was_admitted():
    small = resources_of(make_pod(container(resources=SMALL)))
    pod = with_status(
        make_pod(container(resources=LARGE)),
        reported(allocated=SMALL["requests"], requests=small.requests, limits=small.limits),
    )
    assert resources_of(keep_admitted(pod, None)) == small


def test_what_another_kubelet_runs_a_pod_with_was_admitted():
    running = reported(allocated={}, requests=amounts(**SMALL["requests"]), limits=amounts(**SMALL["limits"]))
    kept = keep_admitted(with_status(make_pod(container(resources=LARGE)), running), None)
    assert resources_of(kept) == resources_of(make_pod(container(resources=SMALL)))


def test_the_spec_of_a_pod_that_never_changed_is_exact():
    pod = with_status(
        make_pod(container(resources=SMALL)),
        reported(allocated=SMALL["requests"], limits=amounts(cpu="1", memory="128Mi")),
        generation=1,
    )
    assert keep_admitted(pod, None) is pod


def test_an_amount_that_came_with_the_resize_was_not_admitted():
    pod = with_status(
        make_pod(container(resources=LARGE)),
        reported(allocated={"cpu": "100m"}, requests=amounts(cpu="100m"), limits={}),
    )
    kept = resources_of(keep_admitted(pod, None))
    assert (kept.requests, kept.limits) == (amounts(cpu="100m"), {})


def test_what_only_the_runtime_says_was_not_admitted():
    pod = with_status(
        make_pod(container(resources={"limits": {"memory": "128Mi"}})),
        reported(allocated={}, limits=amounts(cpu="4", memory="128Mi")),
    )
    assert keep_admitted(pod, None) is pod


def test_other_resources_than_cpu_and_memory_never_change():
    wanted = {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    pod = with_status(
        make_pod(container(resources=wanted)), reported(allocated={"cpu": "500m"}, requests=amounts(cpu="500m"))
    )
    kept = resources_of(keep_admitted(pod, None))
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
    assert keep_admitted(pod, None) is pod
