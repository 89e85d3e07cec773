"""Quality of service: the class by the table of requests and limits, and the OOM score of each container."""

import pytest
from msgspec.structs import replace

from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.model.allocation import desired_allocation
from klet.model.qos import QosClass, compute_qos, oom_score, qos_of
from klet.testing.builders import make_container, make_pod, with_resources

GUARANTEED, BURSTABLE, BEST_EFFORT = QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT
CAPACITY = 8_000_000_000


def amounts(text: str) -> dict[str, str]:
    """`100m,100Mi` is cpu and memory; `memory=1` names one; empty is nothing."""
    if not text:
        return {}
    if "=" in text:
        return dict(part.split("=") for part in text.split(","))
    return dict(zip(("cpu", "memory"), text.split(","), strict=True))


def container(requests: str = "", limits: str = "", *, name: str = "c", restart: str | None = None) -> Container:
    made = make_container(name, restart_policy=restart)
    return with_resources(made, requests=amounts(requests), limits=amounts(limits))


def with_pod_level(pod: Pod, requests: str = "", limits: str = "") -> Pod:
    resources = ResourceRequirements(
        requests={name: Quantity.parse(text) for name, text in amounts(requests).items()},
        limits={name: Quantity.parse(text) for name, text in amounts(limits).items()},
    )
    return replace(pod, spec=replace(pod.spec, resources=resources))


FULL = container("100m,100Mi", "100m,100Mi")
NONE = container()


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        pytest.param([FULL], [], GUARANTEED, id="requests equal to limits are guaranteed"),
        pytest.param([FULL, FULL], [], GUARANTEED, id="all containers guaranteed make the pod so"),
        pytest.param([NONE], [], BEST_EFFORT, id="nothing asked for is best effort"),
        pytest.param([NONE, NONE], [], BEST_EFFORT, id="two that ask for nothing are best effort"),
        pytest.param(
            [container("cpu=0,memory=0,hugepages-2Mi=4Mi", "cpu=0,memory=0,hugepages-2Mi=4Mi")],
            [],
            BEST_EFFORT,
            id="huge pages alone do not count",
        ),
        pytest.param([NONE, FULL], [], BURSTABLE, id="one without requests makes the pod Burstable"),
        pytest.param([container("memory=100Mi", "memory=100Mi")], [], BURSTABLE, id="memory alone is no guarantee"),
        pytest.param([container("100m,100Mi", "")], [], BURSTABLE, id="requests without limits"),
        pytest.param(
            [container("100m,100Mi", "200m,200Mi"), container("100m,100Mi", "")],
            [],
            BURSTABLE,
            id="equal sums are not enough when one container has no limits",
        ),
        pytest.param([container("0,0", "100m,200Mi")], [], BURSTABLE, id="requests of zero with limits"),
        pytest.param([NONE], [container("10m,100Mi", "100m,200Mi")], BURSTABLE, id="init containers count"),
        pytest.param([FULL], [FULL], GUARANTEED, id="guaranteed init containers keep the guarantee"),
        pytest.param([container("", "100m,100Mi")], [], BURSTABLE, id="limits alone, as no defaulting has seen them"),
    ],
)
def test_class_by_containers(containers, init, expected):
    assert compute_qos(make_pod(*containers, init=init)) is expected


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        pytest.param("10m,100Mi", "10m,100Mi", GUARANTEED, id="equal requests and limits of the pod"),
        pytest.param("10m,10Mi", "20m,50Mi", BURSTABLE, id="lower requests than limits"),
        pytest.param("10m,10Mi", "", BURSTABLE, id="requests without limits"),
        pytest.param("", "", BEST_EFFORT, id="empty pod-level resources hide what the containers ask for"),
        pytest.param("hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi", BEST_EFFORT, id="huge pages only"),
        pytest.param("0,0", "0,0", BEST_EFFORT, id="zero values only"),
        pytest.param("", "cpu=1", BURSTABLE, id="a limit of cpu without one of memory"),
        pytest.param("cpu=1", "cpu=1", BURSTABLE, id="cpu alone is no guarantee"),
    ],
)
@pytest.mark.parametrize("inner", [pytest.param(NONE, id="bare container"), pytest.param(FULL, id="full container")])
def test_class_by_pod_level_resources(requests, limits, expected, inner):
    assert compute_qos(with_pod_level(make_pod(inner), requests, limits)) is expected


def test_ephemeral_containers_do_not_count():
    pod = make_pod(NONE)
    debug = EphemeralContainer(name="debug", resources=FULL.resources)
    assert compute_qos(replace(pod, spec=replace(pod.spec, ephemeral_containers=(debug,)))) is BEST_EFFORT


def score(pod: Pod, name: str = "c", capacity: int = CAPACITY) -> int:
    return oom_score(pod, name, desired_allocation(pod), compute_qos(pod), memory_capacity=capacity)


@pytest.mark.parametrize(
    ("made", "capacity", "expected"),
    [
        pytest.param(container("", "cpu=1"), 4_000_000_000, 999, id="only a cpu limit"),
        pytest.param(container("", "memory=1Gi"), CAPACITY, 999, id="a memory limit without a request"),
        pytest.param(container("", "memory=0"), CAPACITY, 1000, id="a memory limit of zero is best effort"),
        pytest.param(container("memory=4000000000"), CAPACITY, 500, id="half of the memory"),
        pytest.param(container("memory=7999999999"), CAPACITY, 3, id="nearly all of the memory"),
        pytest.param(container("memory=9000000000"), CAPACITY, 3, id="more than all of the memory"),
        pytest.param(container("memory=1"), CAPACITY, 999, id="never as high as best effort"),
        pytest.param(FULL, CAPACITY, -997, id="guaranteed"),
        pytest.param(NONE, CAPACITY, 1000, id="best effort"),
    ],
)
def test_score_of_one_container(made, capacity, expected):
    assert score(make_pod(made), capacity=capacity) == expected


@pytest.mark.parametrize(
    ("main", "sidecar", "expected"),
    [
        pytest.param(CAPACITY // 8, CAPACITY // 20, (875, 875), id="a small sidecar is protected like the main one"),
        pytest.param(CAPACITY // 8, CAPACITY // 2, (875, 500), id="a large sidecar keeps its own lower score"),
    ],
)
def test_a_sidecar_is_not_killed_before_those_it_serves(main, sidecar, expected):
    pod = make_pod(
        container(f"memory={main}", name="main"),
        init=[container(f"memory={sidecar}", name="side", restart="Always")],
    )
    assert (score(pod, "main"), score(pod, "side")) == expected


def test_a_plain_init_container_has_its_own_score():
    pod = make_pod(
        container(f"memory={CAPACITY // 8}", name="main"), init=[container(f"memory={CAPACITY // 20}", name="init")]
    )
    assert score(pod, "init") == 950


@pytest.mark.parametrize(
    ("inner", "init", "expected"),
    [
        pytest.param(["", ""], [], [750, 750], id="an unclaimed request is shared"),
        pytest.param(["memory=1000000000", ""], [], [625, 875], id="what is claimed counts for the claimer"),
        pytest.param(["memory=3000000000", ""], [], [250, 999], id="more claimed than the pod has leaves no share"),
        pytest.param(
            ["memory=1000000000"],
            ["memory=1000000000"],
            [625],
            id="a plain init container uses the memory of the regular ones, not more",
        ),
    ],
)
def test_pod_level_memory_is_shared_among_containers(inner, init, expected):
    made = [container(requests, name=f"c{number}") for number, requests in enumerate(inner)]
    made_init = [container(requests, name=f"i{number}") for number, requests in enumerate(init)]
    pod = with_pod_level(make_pod(*made, init=made_init), "memory=2000000000")
    assert [score(pod, each.name, 4_000_000_000) for each in made] == expected


def test_pod_level_guarantee_holds_for_all_containers():
    pod = with_pod_level(make_pod(NONE), "1,2Gi", "1,2Gi")
    assert score(pod, capacity=4_000_000_000) == -997


@pytest.mark.parametrize(
    ("priority", "class_name", "expected"),
    [
        pytest.param(2_000_001_000, "system-node-critical", -997, id="node-critical pods go last"),
        pytest.param(2_000_000_000, "system-cluster-critical", 1000, id="cluster-critical pods are as others"),
        pytest.param(1000, "system-node-critical", 1000, id="the class name alone does not make a pod critical"),
    ],
)
def test_critical_pods(priority, class_name, expected):
    pod = make_pod(NONE)
    pod = replace(pod, spec=replace(pod.spec, priority=priority, priority_class_name=class_name))
    assert score(pod) == expected


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        pytest.param(NONE, 1000, id="in a best effort pod"),
        pytest.param(container("memory=1Gi"), 999, id="in a burstable pod"),
        pytest.param(FULL, -997, id="in a guaranteed pod"),
    ],
)
def test_an_ephemeral_container_is_scored_by_the_class_of_its_pod(inner, expected):
    pod = make_pod(inner)
    pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(EphemeralContainer(name="debug"),)))
    assert score(pod, "debug") == expected


def test_the_class_in_the_status_stays():
    pod = make_pod(FULL)
    assert qos_of(pod) is GUARANTEED
    assert qos_of(replace(pod, status=replace(pod.status, qos_class="Burstable"))) is BURSTABLE
    assert qos_of(replace(pod, status=replace(pod.status, qos_class="Odd"))) is GUARANTEED
