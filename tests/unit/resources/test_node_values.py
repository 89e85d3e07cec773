"""What all pods together and the reserved cgroups get: upstream's tables."""

import pytest

from klet.api.quantity import Quantity
from klet.host.cgroups.resources import CgroupResources
from klet.resources.node_values import (
    Enforcement,
    NodeAllocatableRules,
    compute_allocatable_limits,
    compute_root_values,
    plan_reserved,
)

GIB, MIB = 1 << 30, 1 << 20
PAGES = 2 * MIB
CAPACITY = {"cpu": "10", "memory": "10Gi", "hugepages-2Mi": "1Gi", "pid": "4096"}
SYSTEM = {"cpu": "500m", "memory": "1Gi", "pid": "96"}
KUBE = {"cpu": "1500m", "memory": "512Mi"}


def amounts(given):
    return {name: Quantity.parse(text) for name, text in given.items()}


def rules(*enforced, capacity=None, system=SYSTEM, kube=KUBE, **more):
    return NodeAllocatableRules(
        capacity=amounts(capacity or CAPACITY),
        system_reserved=amounts(system),
        kube_reserved=amounts(kube),
        enforced=frozenset(Enforcement(level) for level in enforced),
        system_cgroup="/system",
        kube_cgroup="/kube",
        **more,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            rules("pods"),
            CgroupResources(
                cpu_shares=8192, memory_limit=8 * GIB + 512 * MIB, pids_limit=4000, hugepages={PAGES: 1 << 62}
            ),
            id="what is reserved is not the pods'",
        ),
        pytest.param(
            rules(),
            CgroupResources(cpu_shares=10240, memory_limit=10 * GIB, pids_limit=4096, hugepages={PAGES: 1 << 62}),
            id="without enforcement they get the whole capacity",
        ),
        pytest.param(
            rules("kube-reserved"),
            CgroupResources(cpu_shares=10240, memory_limit=10 * GIB, pids_limit=4096, hugepages={PAGES: 1 << 62}),
            id="other enforcements do not touch them",
        ),
        pytest.param(
            rules("pods", system={"memory": "20Gi"}, kube={}),
            CgroupResources(cpu_shares=10240, memory_limit=0, pids_limit=4096, hugepages={PAGES: 1 << 62}),
            id="more reserved than there is leaves nothing",
        ),
        pytest.param(
            rules("pods", capacity={"cpu": "2", "memory": "1Gi"}, system={}, kube={}),
            CgroupResources(cpu_shares=2048, memory_limit=GIB),
            id="a kernel that does not report its processes limits none",
        ),
        pytest.param(
            rules(has_classes=False),
            CgroupResources(cpu_shares=10240, memory_limit=10 * GIB, pids_limit=4096, hugepages={PAGES: GIB}),
            id="without QoS classes huge pages are limited to those that there are",
        ),
        pytest.param(
            rules(cpus="0-9", capacity={"cpu": "10"}),
            CgroupResources(cpu_shares=10240, cpuset="0-9"),
            id="without a CPU manager they have all CPUs",
        ),
    ],
)
def test_all_pods_together(given, expected):
    assert compute_root_values(given) == expected


def test_evictions_keep_nothing_of_the_limit():
    # What eviction thresholds keep free is not even among the rules: it lowers what the Node reports alone.
    limits = compute_allocatable_limits(rules("pods", system={}, kube={}))
    assert limits == amounts(CAPACITY)


@pytest.mark.parametrize(
    ("given", "title", "path", "values"),
    [
        pytest.param(
            rules("system-reserved"),
            "System Reserved",
            "/system",
            CgroupResources(cpu_shares=512, memory_limit=GIB, pids_limit=96),
            id="the system",
        ),
        pytest.param(
            rules("kube-reserved"),
            "Kube Reserved",
            "/kube",
            CgroupResources(cpu_shares=1536, memory_limit=512 * MIB),
            id="Kubernetes, without what is not reserved",
        ),
        pytest.param(
            rules("system-reserved-compressible"),
            "System Reserved Compressible",
            "/system",
            CgroupResources(cpu_shares=512),
            id="only the CPU of the system",
        ),
        pytest.param(
            rules("kube-reserved-compressible", kube={"memory": "1Gi"}),
            "Kube Reserved Compressible",
            "/kube",
            CgroupResources(),
            id="only the CPU of Kubernetes, of which none is reserved",
        ),
        pytest.param(rules("system-reserved", system={}), "System Reserved", "/system", None, id="nothing is reserved"),
        pytest.param(
            rules("kube-reserved", kube={"memory": "1Gi"}, memory_qos=True),
            "Kube Reserved",
            "/kube",
            CgroupResources(memory_limit=GIB, memory_min=GIB),
            id="with memory QoS the reserved memory is protected",
        ),
        pytest.param(
            rules("kube-reserved-compressible", memory_qos=True),
            "Kube Reserved Compressible",
            "/kube",
            CgroupResources(cpu_shares=1536),
            id="which needs a limit of memory",
        ),
        pytest.param(
            rules("kube-reserved-compressible", cpus="0-3"),
            "Kube Reserved Compressible",
            "/kube",
            CgroupResources(cpu_shares=1536, cpuset="0-3"),
            id="without a CPU manager it has all CPUs",
        ),
    ],
)
def test_reserved_cgroups(given, title, path, values):
    [planned] = plan_reserved(given)
    assert (planned.title, planned.path, planned.values) == (title, path, values)


def test_they_are_limited_in_upstreams_order():
    every = rules("kube-reserved-compressible", "pods", "system-reserved")
    assert [each.title for each in plan_reserved(every)] == ["System Reserved", "Kube Reserved Compressible"]
    assert list(plan_reserved(rules("pods"))) == []
