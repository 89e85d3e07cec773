"""What the runtime has to enforce."""

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from klet.api.codec import convert
from klet.api.container import EphemeralContainer
from klet.api.pod import Pod
from klet.model.allocation import Pins, desired_allocation
from klet.runtime.config.linux_resources import (
    MemoryQosRules,
    ResourceRules,
    SwapRules,
    build_container_resources,
    build_overhead,
    build_sandbox_resources,
)
from klet.wire import cri_v1_pb2 as cri

MIB, GIB = 1 << 20, 1 << 30
CAPACITY = 8_000_000_000
V1 = ResourceRules(memory_capacity=CAPACITY)
V2 = ResourceRules(is_unified=True, memory_capacity=CAPACITY, hugepage_sizes=(2 * MIB, GIB), kills_whole_container=True)
PLAIN = ResourceRules()


def container(requests=None, limits=None, **more):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(*containers, init=(), qos="", priority=None, **spec):
    return convert(
        Pod,
        {
            "spec": {"containers": list(containers), "initContainers": list(init), "priority": priority, **spec},
            "status": {"qosClass": qos},
        },
    )


def built(given: Pod, rules: ResourceRules = PLAIN, **options) -> cri.LinuxContainerResources:
    return build_container_resources(given, given.spec.containers[0].name, desired_allocation(given), rules, **options)


def pages(*pairs: tuple[str, int]) -> list[cri.HugepageLimit]:
    return [cri.HugepageLimit(page_size=size, limit=limit) for size, limit in pairs]


TYPICAL = pod(container({"cpu": "250m", "memory": "1e9"}, {"cpu": "500m", "memory": "2e9"}))


def test_a_typical_container_on_version_2():
    assert built(TYPICAL, V2) == cri.LinuxContainerResources(
        cpu_period=100000,
        cpu_quota=50000,
        cpu_shares=256,
        memory_limit_in_bytes=2_000_000_000,
        oom_score_adj=875,
        hugepage_limits=pages(("2MB", 0), ("1GB", 0)),
        unified={"memory.oom.group": "1"},
    )


def test_a_typical_container_on_version_1():
    assert built(TYPICAL, V1) == cri.LinuxContainerResources(
        cpu_period=100000, cpu_quota=50000, cpu_shares=256, memory_limit_in_bytes=2_000_000_000, oom_score_adj=875
    )


@pytest.mark.parametrize(
    ("requests", "limits", "shares", "quota"),
    [
        pytest.param({}, {}, 2, 0, id="nothing asked for"),
        pytest.param({"cpu": "100m"}, {}, 102, 0, id="a request"),
        pytest.param({"cpu": "1m"}, {}, 2, 0, id="a tiny request"),
        pytest.param({}, {"cpu": "500m"}, 512, 50000, id="a limit stands in for the request"),
        pytest.param({}, {"cpu": "5m"}, 5, 1000, id="a tiny limit"),
        pytest.param({"cpu": "0"}, {"cpu": "1"}, 2, 100000, id="a request of zero is a request"),
        pytest.param({"cpu": "256"}, {"cpu": "1500m"}, 262144, 150000, id="a huge request"),
    ],
)
def test_cpu(requests, limits, shares, quota):
    found = built(pod(container(requests, limits)))
    assert (found.cpu_shares, found.cpu_quota, found.cpu_period) == (shares, quota, 100000)


@pytest.mark.parametrize(
    ("rules", "options", "quota", "period"),
    [
        pytest.param(ResourceRules(cpu_quota=False), {}, 0, 0, id="not enforced"),
        pytest.param(ResourceRules(cpu_period=5000), {}, 2500, 5000, id="another period"),
        pytest.param(PLAIN, {"pins": Pins(lifts_quota=True)}, -1, 100000, id="CPUs of its own"),
        pytest.param(
            ResourceRules(cpu_quota=False), {"pins": Pins(lifts_quota=True)}, 0, 0, id="CPUs of its own, not enforced"
        ),
    ],
)
def test_cpu_by_the_rules_of_the_node(rules, options, quota, period):
    found = built(TYPICAL, rules, **options)
    assert (found.cpu_quota, found.cpu_period) == (quota, period)


@pytest.mark.parametrize(
    ("given", "cpu", "memory"),
    [
        pytest.param(pod(container(), resources={"limits": {"cpu": "1", "memory": "1Gi"}}), 100000, GIB, id="whole"),
        pytest.param(
            pod(container({}, {"cpu": "500m"}), resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
            50000,
            GIB,
            id="the container's own comes first",
        ),
        pytest.param(
            pod(container({}, {"cpu": "0", "memory": "0"}), resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
            100000,
            GIB,
            id="zero is none",
        ),
        pytest.param(pod(container(), resources={"requests": {"cpu": "1"}}), 0, 0, id="a request is no limit"),
    ],
)
def test_limits_of_the_pod_as_a_whole(given, cpu, memory):
    found = built(given)
    assert (found.cpu_quota, found.memory_limit_in_bytes) == (cpu, memory)


@pytest.mark.parametrize(
    ("whole", "own", "expected"),
    [
        pytest.param({}, {}, [0, 0], id="none asked for"),
        pytest.param({}, {"hugepages-2Mi": "4Mi"}, [4 * MIB, 0], id="the container's"),
        pytest.param({"hugepages-1Gi": "2Gi"}, {}, [0, 2 * GIB], id="the pod's"),
        pytest.param(
            {"hugepages-2Mi": "8Mi", "hugepages-1Gi": "2Gi"},
            {"hugepages-2Mi": "4Mi"},
            [4 * MIB, 2 * GIB],
            id="the container's comes first, size by size",
        ),
        pytest.param({}, {"hugepages-64Ki": "64Ki"}, [0, 0], id="a size that the machine does not have"),
    ],
)
def test_huge_pages(whole, own, expected):
    given = pod(container({}, own), resources={"limits": whole})
    assert list(built(given, V2).hugepage_limits) == pages(("2MB", expected[0]), ("1GB", expected[1]))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(V2, {"memory.oom.group": "1"}, id="all processes die together"),
        pytest.param(change(V2, kills_whole_container=False), {}, id="one process dies"),
        pytest.param(change(V1, kills_whole_container=True), {}, id="version 1 cannot"),
    ],
)
def test_what_dies_when_memory_runs_out(rules, expected):
    assert dict(built(TYPICAL, rules).unified) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(TYPICAL, 875, id="burstable"),
        pytest.param(pod(container({"cpu": "1"}), qos="Guaranteed"), -997, id="the class in the status decides"),
        pytest.param(pod(container()), 1000, id="best effort"),
        pytest.param(
            pod(container(), priority=2_000_001_000, priorityClassName="system-node-critical"), -997, id="node critical"
        ),
        pytest.param(
            pod(container(), priority=2_000_000_000, priorityClassName="system-cluster-critical"),
            1000,
            id="cluster critical",
        ),
    ],
)
def test_oom_score(given, expected):
    assert built(given, V1).oom_score_adj == expected


NO_SWAP, LIMITED = SwapRules(), SwapRules(is_limited=True, capacity=5 * GIB)
NODE = ResourceRules(is_unified=True, memory_capacity=40 * GIB)
ASKING = {"memory": "1Gi"}
CRITICAL = 2_000_000_000


@pytest.mark.parametrize(
    ("given", "rules", "expected"),
    [
        pytest.param(pod(container(ASKING)), change(NODE, swap=None), None, id="the kernel cannot"),
        pytest.param(pod(container(ASKING)), change(NODE, swap=NO_SWAP), "0", id="none allowed"),
        pytest.param(
            pod(container(ASKING)), change(NODE, swap=LIMITED), "134217728", id="in proportion to the request"
        ),
        pytest.param(
            pod(container({"memory": "4Gi"}, {"memory": "8Gi"})),
            ResourceRules(is_unified=True, memory_capacity=64 * GIB, swap=SwapRules(is_limited=True, capacity=8 * GIB)),
            "536870912",
            id="a limit does not matter",
        ),
        pytest.param(
            pod(container(ASKING), priority=CRITICAL), change(NODE, swap=LIMITED), "0", id="not for critical pods"
        ),
        pytest.param(
            pod(container({"cpu": "1", **ASKING}, {"cpu": "1", **ASKING})),
            change(NODE, swap=LIMITED),
            "0",
            id="not for guaranteed pods",
        ),
        pytest.param(pod(container()), change(NODE, swap=LIMITED), "0", id="not for best-effort pods"),
        pytest.param(
            pod(container({"cpu": "1"})), change(NODE, swap=LIMITED), "0", id="not without a request of memory"
        ),
        pytest.param(
            pod(container(ASKING, ASKING)), change(NODE, swap=LIMITED), "0", id="not where the request is the limit"
        ),
        pytest.param(
            pod(container({"cpu": "1"}, ASKING)), change(NODE, swap=LIMITED), "0", id="nothing in proportion to nothing"
        ),
        pytest.param(
            pod(container({"memory": "41Gi"})), change(NODE, swap=LIMITED), "0", id="not for more than there is"
        ),
        pytest.param(
            pod(container(ASKING)),
            change(NODE, memory_capacity=0, swap=LIMITED),
            "0",
            id="not on a node of unknown size",
        ),
    ],
)
def test_swap_on_version_2(given, rules, expected):
    found = built(given, rules)
    assert dict(found.unified).get("memory.swap.max") == expected
    assert found.memory_swap_limit_in_bytes == 0


@pytest.mark.parametrize(
    ("swap", "expected"),
    [
        pytest.param(None, 0, id="the kernel cannot"),
        pytest.param(NO_SWAP, 2_000_000_000, id="none allowed"),
        pytest.param(LIMITED, 2_000_000_000, id="some allowed, but not on this version"),
    ],
)
def test_swap_on_version_1(swap, expected):
    found = built(TYPICAL, change(V1, swap=swap))
    assert found.memory_swap_limit_in_bytes == expected
    assert not found.unified


MEMORY_QOS = MemoryQosRules(throttling_factor=0.9, allocatable=10 * GIB)


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        pytest.param({}, {}, {}, id="nothing asked for"),
        pytest.param(
            {"memory": "100Mi"},
            {"memory": "200Mi"},
            {"memory.min": str(100 * MIB), "memory.high": str(190 * MIB)},
            id="slowed down before the limit",
        ),
        pytest.param(
            {"memory": "1Gi"},
            {},
            {"memory.min": str(GIB), "memory.high": str(int((GIB + 9 * GIB * 0.9) // 4096) * 4096)},
            id="or before the end of the node",
        ),
        pytest.param({"memory": "1Gi"}, {"memory": "1Gi"}, {"memory.min": str(GIB)}, id="never, with all guaranteed"),
        pytest.param({}, {"memory": "1000"}, {}, id="less than a page"),
        pytest.param({}, {"memory": "10Ki"}, {"memory.high": "8192"}, id="whole pages"),
    ],
)
def test_memory_quality_of_service(requests, limits, expected):
    rules = ResourceRules(is_unified=True, memory_qos=MEMORY_QOS)
    assert dict(built(pod(container(requests, limits)), rules).unified) == expected


def test_memory_quality_of_service_needs_version_2():
    assert not built(TYPICAL, ResourceRules(memory_qos=MEMORY_QOS)).unified


def test_a_node_of_which_nothing_is_allocatable_slows_no_pod_down():
    rules = ResourceRules(is_unified=True, memory_qos=change(MEMORY_QOS, allocatable=0))
    assert dict(built(pod(container({"memory": "1Ki"})), rules).unified) == {"memory.min": "1024"}


def test_an_ephemeral_container_gets_nothing_but_a_score():
    given = TYPICAL
    extra = EphemeralContainer(name="debug")
    given = replace(given, spec=replace(given.spec, ephemeral_containers=(extra,)))
    assert build_container_resources(given, extra.name, desired_allocation(given), V1) == cri.LinuxContainerResources(
        cpu_period=100000, cpu_shares=2, oom_score_adj=999
    )


SUMMED = pod(
    container({"cpu": "250m", "memory": "1Mi"}, {"cpu": "500m", "memory": "2Mi"}),
    container({"cpu": "250m"}, {"cpu": "500m", "memory": "1Mi"}),
    init=[container({"cpu": "500m"}, {"cpu": "1", "memory": "5Mi"}, restartPolicy="Always")],
    overhead={"cpu": "100m", "memory": "10Mi"},
)


def test_the_sandbox_gets_the_sum_without_overhead():
    rules = change(V2, swap=NO_SWAP, memory_qos=MEMORY_QOS)
    assert build_sandbox_resources(desired_allocation(SUMMED), rules) == cri.LinuxContainerResources(
        cpu_period=100000,
        cpu_quota=200000,
        cpu_shares=1024,
        memory_limit_in_bytes=8 * MIB,
        unified={"memory.oom.group": "1"},
    )


@pytest.mark.parametrize(
    ("given", "shares", "quota", "memory"),
    [
        pytest.param(pod(container()), 2, 0, 0, id="nothing asked for"),
        pytest.param(pod(container({}, {"cpu": "1"})), 1024, 100000, 0, id="a limit stands in for the request"),
        pytest.param(
            pod(container({"cpu": "1"}), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "1Gi"}}),
            2048,
            300000,
            GIB,
            id="what the pod as a whole asks for",
        ),
        pytest.param(pod(container(), overhead={"cpu": "1"}), 2, 0, 0, id="overhead alone"),
    ],
)
def test_sandboxes(given, shares, quota, memory):
    found = build_sandbox_resources(desired_allocation(given), PLAIN)
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes) == (shares, quota, memory)


def test_a_sandbox_with_cpus_of_its_own_has_no_quota():
    assert build_sandbox_resources(desired_allocation(SUMMED), PLAIN, lifts_quota=True).cpu_quota == -1


def test_overhead_is_request_and_limit():
    assert build_overhead(desired_allocation(SUMMED), V2) == cri.LinuxContainerResources(
        cpu_period=100000,
        cpu_quota=10000,
        cpu_shares=102,
        memory_limit_in_bytes=10 * MIB,
        unified={"memory.oom.group": "1"},
    )


def test_no_overhead_is_an_empty_message():
    assert build_overhead(desired_allocation(TYPICAL), V2) == cri.LinuxContainerResources()


def test_the_allocation_is_enforced_and_not_the_spec():
    bare = pod(container(), qos="Burstable")
    given = desired_allocation(TYPICAL)
    assert build_container_resources(bare, "c", given, V2) == built(TYPICAL, V2)


def test_a_container_is_bound_to_what_it_was_given_alone():
    pins = Pins(cpus=frozenset({2, 3, 4, 8}), memory_nodes=frozenset({10, 0, 1}))
    bound = built(TYPICAL, V2, pins=pins)
    assert (bound.cpuset_cpus, bound.cpuset_mems) == ("2-4,8", "0,1,10")
    assert (built(TYPICAL, V2).cpuset_cpus, built(TYPICAL, V2).cpuset_mems) == ("", "")
