import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.pod_resources import aggregate_container_limits, aggregate_container_requests, compute_qos_class


def pod(*containers, init=(), **spec):
    named = [{"name": f"c{number}", "resources": resources} for number, resources in enumerate(containers)]
    return convert(Pod, {"spec": {"containers": named, "initContainers": list(init), **spec}})


def init(cpu, *, sidecar=False):
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **policy}


def cpus(*amounts):
    return [{"requests": {"cpu": amount}, "limits": {"cpu": amount}} for amount in amounts]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(*cpus("1", "500m")), "1500m", id="containers add up"),
        pytest.param(pod(*cpus("1"), init=[init("3")]), "3", id="an init container runs alone"),
        pytest.param(pod(*cpus("1"), init=[init("1", sidecar=True)]), "2", id="a sidecar runs along"),
        pytest.param(
            pod(*cpus("1", "1"), init=[init("2"), init("1", sidecar=True), init("3")]),
            "4",
            id="an init container next to a sidecar",
        ),
    ],
)
def test_aggregates(given, expected):
    assert str(aggregate_container_requests(given.spec)["cpu"]) == expected
    assert str(aggregate_container_limits(given.spec)["cpu"]) == expected


def both(cpu, memory):
    return {"cpu": cpu, "memory": memory}


SMALL = both("100m", "100Mi")
LARGE = both("200m", "200Mi")
FULL = {"requests": SMALL, "limits": SMALL}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(FULL), "Guaranteed", id="requests equal limits"),
        pytest.param(pod({}), "BestEffort", id="nothing at all"),
        pytest.param(pod({}, {}), "BestEffort", id="nothing twice"),
        pytest.param(pod({"limits": {"hugepages-2Mi": "2Mi", "cpu": "0"}}), "BestEffort", id="hugepages do not count"),
        pytest.param(pod({}, FULL), "Burstable", id="one container without"),
        pytest.param(pod({"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}}), "Burstable", id="memory alone"),
        pytest.param(pod({"requests": SMALL}), "Burstable", id="requests alone"),
        pytest.param(
            pod({"requests": SMALL, "limits": LARGE}, {"requests": SMALL}), "Burstable", id="equal sums are not enough"
        ),
        pytest.param(pod({"requests": both("0", "0"), "limits": LARGE}), "Burstable", id="zero requests"),
        pytest.param(
            pod({}, init=[{"name": "i", "resources": {"requests": SMALL, "limits": LARGE}}]),
            "Burstable",
            id="init containers count",
        ),
        pytest.param(pod({}, resources=FULL), "Guaranteed", id="pod level, equal"),
        pytest.param(pod(FULL, resources={"requests": SMALL, "limits": LARGE}), "Burstable", id="pod level wins"),
        pytest.param(pod({}, resources={"requests": SMALL}), "Burstable", id="pod level, requests alone"),
        pytest.param(pod(FULL, resources={}), "BestEffort", id="an empty pod level"),
        pytest.param(
            pod(FULL, resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}),
            "Burstable",
            id="pod level without memory",
        ),
    ],
)
def test_qos_class(given, expected):
    assert compute_qos_class(given) == expected
