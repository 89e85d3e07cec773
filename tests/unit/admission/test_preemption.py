"""Which pods make room for a critical one."""

import pytest
from msgspec.structs import replace

from klet.admission.preemption import Need, NoVictims, as_preempted, choose_victims, is_preemptable
from klet.api.pod import PodCondition, PodStatus
from klet.model.allocation import desired_allocation
from klet.model.pod_resources import compute_resource_request
from klet.testing.builders import make_container, make_pod, with_resources

MIB = 1 << 20


def pod(name, amount=0, *, limits=None, priority=None, source=""):
    """A pod that requests so many thousandths of a CPU, and so many MiB."""
    texts = {"cpu": f"{amount}m", "memory": f"{amount}Mi"} if amount else {}
    made = make_pod(
        with_resources(make_container("c"), requests=texts, limits=texts if limits else {}),
        name=name,
        uid=name,
        source=source,
    )
    return replace(made, spec=replace(made.spec, priority=priority))


CRITICAL = pod("critical", source="file")
CLUSTER_CRITICAL = pod("cluster-critical", 100, priority=2_000_000_000)
NODE_CRITICAL = pod("node-critical", 100, priority=2_000_001_000)
BEST_EFFORT = pod("best-effort")
BURSTABLE = pod("burstable", 100)
HIGH_BURSTABLE = pod("high-burstable", 300)
GUARANTEED = pod("guaranteed", 100, limits=True)
HIGH_GUARANTEED = pod("high-guaranteed", 300, limits=True)
EVERY = (BEST_EFFORT, BURSTABLE, HIGH_BURSTABLE, GUARANTEED, HIGH_GUARANTEED)


def needs(cpu=0, memory=0, pods=0):
    every = {"cpu": cpu, "memory": memory * MIB, "pods": pods}
    return [Need(name, amount) for name, amount in every.items() if amount]


def requests(pod, resource):
    return compute_resource_request(desired_allocation(pod), resource)


@pytest.mark.parametrize(
    ("others", "wanted", "expected"),
    [
        pytest.param((BURSTABLE, BEST_EFFORT), needs(pods=1), (BEST_EFFORT,), id="the lowest class makes room"),
        pytest.param((BURSTABLE, GUARANTEED), needs(pods=1), (BURSTABLE,), id="the next one if there is no lower"),
        pytest.param(
            (BEST_EFFORT, HIGH_BURSTABLE, BURSTABLE),
            needs(100, 100),
            (BURSTABLE,),
            id="the smaller of two that suffice",
        ),
        pytest.param(
            (BEST_EFFORT, HIGH_BURSTABLE, BURSTABLE), needs(150, 150), (HIGH_BURSTABLE,), id="one instead of two"
        ),
        pytest.param(EVERY, needs(350, 350), (HIGH_BURSTABLE, BURSTABLE), id="two of a class, the nearest first"),
        pytest.param(
            EVERY, needs(memory=550), (HIGH_BURSTABLE, HIGH_GUARANTEED), id="of a higher class what the lower leaves"
        ),
        pytest.param((BEST_EFFORT, BEST_EFFORT, BURSTABLE), needs(pods=2), (BEST_EFFORT,) * 2, id="room for two pods"),
        pytest.param(
            (pod("a", 100), pod("b", 100), pod("c", 300)), needs(pods=1), (pod("b", 100),), id="of equals the later one"
        ),
    ],
)
def test_victims(others, wanted, expected):
    found = choose_victims(CRITICAL, others, wanted, requests)
    assert [each.metadata.name for each in found] == [each.metadata.name for each in expected]


@pytest.mark.parametrize(
    ("others", "wanted", "unmet"),
    [
        pytest.param((BEST_EFFORT,), needs(memory=1), f"(res: memory, q: {MIB}), ", id="pods that request nothing"),
        pytest.param((BURSTABLE,), needs(cpu=150), "(res: cpu, q: 50), ", id="too little altogether"),
        pytest.param((), needs(cpu=1, pods=1), "(res: cpu, q: 1), (res: pods, q: 1), ", id="no pods at all"),
        pytest.param((CRITICAL,), needs(pods=1), "(res: pods, q: 1), ", id="a critical pod"),
    ],
)
def test_no_pods_that_could_make_enough_room(others, wanted, unmet):
    found = choose_victims(CRITICAL, others, wanted, requests)
    assert isinstance(found, NoVictims)
    assert found.message == (
        "preemption: error finding a set of pods to preempt: "
        f"no set of running pods found to reclaim resources: [{unmet}]"
    )


@pytest.mark.parametrize(
    ("preemptor", "other", "expected"),
    [
        pytest.param(CRITICAL, BURSTABLE, True, id="one that is not critical"),
        pytest.param(CRITICAL, CRITICAL, False, id="static pods are equal"),
        pytest.param(NODE_CRITICAL, CLUSTER_CRITICAL, True, id="of two critical ones, the lower priority"),
        pytest.param(CLUSTER_CRITICAL, NODE_CRITICAL, False, id="never the higher priority"),
        pytest.param(CLUSTER_CRITICAL, CLUSTER_CRITICAL, False, id="never an equal priority"),
        pytest.param(CRITICAL, NODE_CRITICAL, False, id="a critical one, by a pod without a priority"),
    ],
)
def test_who_has_to_make_room(preemptor, other, expected):
    assert is_preemptable(preemptor, other) is expected


def test_the_requests_of_a_pod_are_computed_once():
    """Hundreds of pods may have to make room, and the agent waits for the choice."""
    asked = []

    def count(pod, resource):
        asked.append((pod.metadata.name, resource))
        return requests(pod, resource)

    others = tuple(pod(f"pod-{number}", number + 1) for number in range(40))
    assert len(choose_victims(CRITICAL, others, needs(pods=30), count)) == 30
    assert len(asked) == len(set(asked))


def test_the_status_of_a_pod_that_made_room():
    before = PodStatus(
        phase="Running",
        observed_generation=3,
        conditions=(
            PodCondition(type="Ready", status="True"),
            PodCondition(type="DisruptionTarget", status="False", reason="Old"),
        ),
    )
    message = "Preempted in order to admit critical pod"
    after = as_preempted(before)
    assert (after.phase, after.reason, after.message) == ("Failed", "Preempting", message)
    assert after.conditions == (
        PodCondition(type="Ready", status="True"),
        PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="TerminationByKubelet",
            message="Pod was preempted by Kubelet to accommodate a critical pod.",
            observed_generation=3,
        ),
    )
