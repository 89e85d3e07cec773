"""What is written to the cgroups of pods and of the QoS classes."""

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.host.cgroups.resources import CgroupResources
from klet.model.allocation import desired_allocation
from klet.resources.cgroup_values import (
    PodCgroupRules,
    QosRules,
    QosValues,
    compute_demand,
    compute_pod_values,
    compute_qos_values,
)

MIB = 1 << 20
UNBOUNDED = 1 << 62
RULES = PodCgroupRules()
NO_QUOTA = PodCgroupRules(cpu_quota=False)


def container(requests=None, limits=None, **more):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def both(cpu, memory):
    return {"cpu": cpu, "memory": memory}


def pod(*containers, init=(), qos="", **spec):
    return convert(
        Pod,
        {"spec": {"containers": list(containers), "initContainers": list(init), **spec}, "status": {"qosClass": qos}},
    )


def values(**given) -> CgroupResources:
    return CgroupResources(**given)


SMALL = both("100m", "100Mi")
LARGE = both("200m", "200Mi")
BEST_EFFORT = pod(container())
BURSTABLE = pod(container(SMALL))
LIMITED = pod(container(SMALL, LARGE))
GUARANTEED = pod(container(SMALL, SMALL))
QUOTA_20 = {"cpu_quota": 20000, "cpu_period": 100000}
OFF = {"cpu_quota": -1, "cpu_period": 100000}


@pytest.mark.parametrize(
    ("given", "rules", "expected"),
    [
        pytest.param(BEST_EFFORT, RULES, values(cpu_shares=2), id="best effort"),
        pytest.param(BURSTABLE, RULES, values(cpu_shares=102), id="burstable without limits"),
        pytest.param(
            LIMITED,
            RULES,
            values(cpu_shares=102, **QUOTA_20, memory_limit=209715200),
            id="burstable with limits",
        ),
        pytest.param(
            LIMITED, NO_QUOTA, values(cpu_shares=102, **OFF, memory_limit=209715200), id="burstable, not enforced"
        ),
        pytest.param(
            pod(container(SMALL, LARGE), container(SMALL)),
            RULES,
            values(cpu_shares=204),
            id="only one of two containers has limits",
        ),
        pytest.param(
            pod(container(SMALL, LARGE), container(SMALL)),
            NO_QUOTA,
            values(cpu_shares=204),
            id="nor is anything written then if quotas are not enforced",
        ),
        pytest.param(
            GUARANTEED,
            RULES,
            values(cpu_shares=102, cpu_quota=10000, cpu_period=100000, memory_limit=104857600),
            id="guaranteed",
        ),
        pytest.param(
            GUARANTEED,
            NO_QUOTA,
            values(cpu_shares=102, **OFF, memory_limit=104857600),
            id="guaranteed, not enforced",
        ),
        pytest.param(
            GUARANTEED,
            PodCgroupRules(cpu_period=5000),
            values(cpu_shares=102, cpu_quota=1000, cpu_period=5000, memory_limit=104857600),
            id="a short period",
        ),
        pytest.param(
            pod(container(SMALL), resources={"limits": LARGE}),
            RULES,
            values(cpu_shares=102, **QUOTA_20, memory_limit=209715200),
            id="limits of the pod as a whole",
        ),
        pytest.param(
            pod(container(SMALL, {"cpu": "200m"})),
            RULES,
            values(cpu_shares=102, **QUOTA_20),
            id="a CPU limit alone",
        ),
        pytest.param(
            pod(container(SMALL, {"memory": "200Mi"})),
            RULES,
            values(cpu_shares=102, memory_limit=209715200),
            id="a memory limit alone",
        ),
        pytest.param(
            pod(
                container(SMALL, LARGE),
                init=[container({}, both("100m", "1Mi"), restartPolicy="Always"), container()],
            ),
            RULES,
            values(cpu_shares=102, cpu_quota=30000, cpu_period=100000, memory_limit=201 * MIB),
            id="a sidecar's limit covers the init container after it",
        ),
        pytest.param(
            pod(container(SMALL, SMALL), overhead=both("50m", "1Mi")),
            RULES,
            values(cpu_shares=153, cpu_quota=15000, cpu_period=100000, memory_limit=101 * MIB),
            id="overhead counts",
        ),
        pytest.param(
            pod(container({"hugepages-2Mi": "4Mi", "memory": "1Mi"}), container({"hugepages-2Mi": "2Mi"})),
            RULES,
            values(cpu_shares=2, hugepages={2 * MIB: 6 * MIB}),
            id="huge pages by their requests",
        ),
        pytest.param(
            pod(container({"hugepages-1Gi": "1Gi"})),
            RULES,
            values(cpu_shares=2, hugepages={1 << 30: 1 << 30}),
            id="huge pages of a best-effort pod",
        ),
        pytest.param(BEST_EFFORT, PodCgroupRules(pids_limit=9), values(cpu_shares=2, pids_limit=9), id="processes"),
        pytest.param(
            BURSTABLE,
            PodCgroupRules(memory_qos=True),
            values(cpu_shares=102, memory_min=100 * MIB),
            id="requested memory is protected",
        ),
        pytest.param(BEST_EFFORT, PodCgroupRules(memory_qos=True), values(cpu_shares=2), id="nothing to protect"),
        pytest.param(
            pod(container(SMALL, SMALL), qos="BestEffort"),
            RULES,
            values(cpu_shares=2),
            id="the class in the status decides",
        ),
    ],
)
def test_values_of_a_pod(given, rules, expected):
    assert compute_pod_values(given, desired_allocation(given), rules) == expected


def test_a_pod_with_cpus_of_its_own_has_no_quota():
    found = compute_pod_values(GUARANTEED, desired_allocation(GUARANTEED), RULES, lifts_quota=True)
    assert (found.cpu_quota, found.cpu_period) == (-1, 100000)


PODS = (GUARANTEED, BURSTABLE, LIMITED, BEST_EFFORT)
SIZES = (2 * MIB, 1 << 30)
PAGES = {2 * MIB: UNBOUNDED, 1 << 30: UNBOUNDED}


@pytest.mark.parametrize(
    ("pods", "rules", "root", "burstable", "best_effort"),
    [
        pytest.param((), QosRules(), {}, {"cpu_shares": 2}, {}, id="no pods"),
        pytest.param(PODS, QosRules(), {}, {"cpu_shares": 204}, {}, id="burstable pods add up, the others do not"),
        pytest.param(
            (pod(container(SMALL, SMALL), resources={"requests": {"cpu": "1"}}),),
            QosRules(),
            {},
            {"cpu_shares": 1024},
            {},
            id="what a pod asks for as a whole counts",
        ),
        pytest.param(
            PODS,
            QosRules(hugepage_sizes=SIZES),
            {"hugepages": PAGES},
            {"cpu_shares": 204, "hugepages": PAGES},
            {"hugepages": PAGES},
            id="huge pages are not limited here",
        ),
        pytest.param(
            PODS,
            QosRules(memory_qos=True),
            {"memory_min": 300 * MIB},
            {"cpu_shares": 204, "memory_min": 200 * MIB},
            {},
            id="requested memory is protected",
        ),
        pytest.param(
            (BEST_EFFORT,), QosRules(memory_qos=True), {}, {"cpu_shares": 2}, {}, id="nothing to protect is not written"
        ),
        pytest.param(
            PODS,
            QosRules(reserved_percent=50, allocatable_memory=1000 * MIB),
            {},
            {"cpu_shares": 204, "memory_limit": 950 * MIB},
            {"memory_limit": 850 * MIB},
            id="half of the requests is kept from lower classes",
        ),
        pytest.param(
            PODS,
            QosRules(reserved_percent=100, allocatable_memory=1000 * MIB),
            {},
            {"cpu_shares": 204, "memory_limit": 900 * MIB},
            {"memory_limit": 700 * MIB},
            id="all of the requests is kept from lower classes",
        ),
        pytest.param(
            PODS, QosRules(reserved_percent=50), {}, {"cpu_shares": 204}, {}, id="nothing to share out, nothing limited"
        ),
    ],
)
def test_values_of_the_classes(pods, rules, root, burstable, best_effort):
    demands = [compute_demand(each, desired_allocation(each)) for each in pods]
    assert compute_qos_values(demands, rules) == QosValues(
        root=values(**root), burstable=values(**burstable), best_effort=values(cpu_shares=2, **best_effort)
    )


def test_the_allocation_decides_and_not_the_spec():
    given = desired_allocation(LIMITED)
    assert compute_pod_values(BURSTABLE, given, RULES) == compute_pod_values(LIMITED, given, RULES)
    assert compute_demand(BURSTABLE, desired_allocation(pod(container(LARGE)))).memory == 200 * MIB
