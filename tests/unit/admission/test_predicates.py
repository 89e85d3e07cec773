"""Whether a pod fits a node: the reference's cases, and what follows from them."""

import re

import pytest
from msgspec.structs import replace

from klet.admission.predicates import (
    PredicateRules,
    as_rejection,
    check_affinity,
    decide_fit,
    find_failures,
    find_impossible,
    needs_fresh_node,
    with_own_system,
)
from klet.admission.resource_fit import ResourceDemand, compare_resources, compute_requested, compute_used
from klet.api.codec import convert
from klet.api.container import ContainerPort
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.placement import Taint, Toleration
from klet.api.pod import PodOS, PodSpec, PodStatus
from klet.api.security import PodSecurityContext
from klet.model.allocation import desired_allocation
from klet.model.pod_resources import compute_resource_request
from klet.model.verdicts import Admit, Preempt, Reject
from klet.testing.builders import make_container, make_pod, with_resources

PORTS = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
OS_FIELD = Reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
OS_LABEL = Reject(
    "PodOSSelectorNodeLabelDoesNotMatch",
    "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
)


def a_node(labels=None, taints=(), name="machine1", **allocatable):
    amounts = {"pods": "110", "cpu": "4", "memory": "8Gi"} | {
        key.replace("_", "-"): text for key, text in allocatable.items()
    }
    node = convert(Node, {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": amounts}})
    return replace(node, spec=replace(node.spec, taints=tuple(taints)))


def used_by(others):
    used = {}
    for other in others:
        for name, amount in compute_used(desired_allocation(other), other.status).items():
            used[name] = used.get(name, 0) + amount
    return used


def failures_of(pod, others=(), node=None, **rules):
    node = node or a_node()
    requested = compute_requested(desired_allocation(pod), node.status.allocatable)
    demands = compare_resources(requested, used_by(others), pods=len(others), allocatable=node.status.allocatable)
    return find_failures(pod, demands, others, node, PredicateRules(**rules))


def request_of(pod, resource):
    return compute_resource_request(desired_allocation(pod), resource)


def decide(pod, others=(), node=None, **rules):
    return decide_fit(pod, failures_of(pod, others, node, **rules), others, request_of)


def find_rejection(pod, others, *, taints=(), max_pods=110, **rules):
    """The verdict on a node with room, unless the pod is admitted."""
    verdict = decide(pod, others, a_node(taints=taints, pods=str(max_pods)), **rules)
    return None if verdict == Admit() else verdict


def port(number, *, protocol="", host_ip=""):
    return ContainerPort(container_port=80, host_port=number, protocol=protocol, host_ip=host_ip)


def using(*ports):
    return make_pod(replace(make_container("main"), ports=ports))


def in_init(*ports, restart_policy=None):
    return make_pod("main", init=(replace(make_container("first", restart_policy=restart_policy), ports=ports),))


@pytest.mark.parametrize(
    ("pod", "other", "expected"),
    [
        pytest.param(using(port(123)), using(port(123)), PORTS, id="the same port"),
        pytest.param(using(port(123)), using(port(124)), None, id="another port"),
        pytest.param(using(port(0)), using(port(0)), None, id="no port of the host"),
        pytest.param(using(port(123)), using(port(123, protocol="TCP")), PORTS, id="no protocol means TCP"),
        pytest.param(using(port(123, protocol="UDP")), using(port(123)), None, id="another protocol"),
        pytest.param(
            using(port(123, host_ip="10.0.0.1")), using(port(123, host_ip="10.0.0.2")), None, id="another address"
        ),
        pytest.param(using(port(123, host_ip="10.0.0.1")), using(port(123)), PORTS, id="no address means all"),
        pytest.param(
            using(port(123, host_ip="0.0.0.0")), using(port(123, host_ip="10.0.0.2")), PORTS, id="all addresses"
        ),
        pytest.param(
            in_init(port(123), restart_policy="Always"), using(port(123)), PORTS, id="a sidecar keeps its port"
        ),
        pytest.param(in_init(port(123)), using(port(123)), None, id="an init container does not"),
        pytest.param(using(port(123), port(124)), using(port(124)), PORTS, id="one of several"),
    ],
)
def test_host_ports(pod, other, expected):
    found = find_rejection(pod, [make_pod(), other])
    assert (None if found is None else found.message) == expected


def test_a_port_that_is_held_is_named_with_who_holds_it():
    holder = replace(using(port(53, protocol="UDP")), metadata=ObjectMeta(name="dns-node", namespace="kube-system"))
    found = find_rejection(using(port(80), port(53, protocol="UDP")), [using(port(81)), holder])
    assert found.measurements == {
        "why": "host port 53/UDP is held by pod kube-system/dns-node",
        "hostPort": 53,
        "protocol": "UDP",
        "heldBy": "kube-system/dns-node",
    }


AGENT = (port(10250), port(10248, host_ip="127.0.0.1"))


@pytest.mark.parametrize(
    ("pod", "is_admitted"),
    [
        pytest.param(using(port(10250)), False, id="the port of the kubelet API"),
        pytest.param(using(port(10250, host_ip="10.0.0.1")), False, id="on one address, while the agent has all"),
        pytest.param(using(port(10248)), False, id="on all addresses, of which the agent has one"),
        pytest.param(using(port(10248, host_ip="10.0.0.1")), True, id="on another address"),
        pytest.param(using(port(10250, protocol="UDP")), True, id="another protocol"),
        pytest.param(using(port(10251)), True, id="another port"),
        pytest.param(using(), True, id="no port"),
        pytest.param(
            replace(using(port(10250)), spec=replace(using(port(10250)).spec, host_network=True)),
            True,
            id="on the host's network nothing is mapped",
        ),
    ],
)
def test_ports_of_the_agent(pod, is_admitted):
    found = find_rejection(pod, [], own_ports=AGENT)
    assert (found is None) is is_admitted
    if found is not None:
        assert found.reason == "NodePorts"
        assert re.fullmatch(rf"{re.escape(PORTS)}: host port 102\d\d/TCP is held by the node agent", found.message)
        assert found.measurements["heldBy"] == "the node agent"


def test_a_pod_may_ask_for_a_port_nobody_has():
    assert find_rejection(using(port(123)), []) is None


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod(), None, id="any"),
        pytest.param(replace(make_pod(), spec=replace(make_pod().spec, os=PodOS(name="linux"))), None, id="linux"),
        pytest.param(
            replace(make_pod(), spec=replace(make_pod().spec, os=PodOS(name="windows"))), OS_FIELD, id="windows"
        ),
        pytest.param(
            replace(make_pod(), metadata=replace(make_pod().metadata, labels={"kubernetes.io/os": "windows"})),
            OS_LABEL,
            id="windows by its label",
        ),
    ],
)
def test_operating_systems(pod, expected):
    assert find_impossible(pod, has_groups_policy=False) == expected


TAINTED = (Taint(key="maintenance", effect="NoSchedule"), Taint(key="sla", value="950", effect="NoExecute"))
UNTOLERATED = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"


def tolerating(*tolerations: Toleration, source: str = "api"):
    pod = make_pod(source=source)
    return replace(pod, spec=replace(pod.spec, tolerations=tolerations))


@pytest.mark.parametrize(
    ("pod", "comparisons", "is_admitted"),
    [
        pytest.param(tolerating(), False, False, id="a NoExecute taint that it does not tolerate"),
        pytest.param(tolerating(source="file"), False, True, id="a static pod runs all the same"),
        pytest.param(tolerating(Toleration(key="sla", operator="Exists")), False, True, id="one that it tolerates"),
        pytest.param(tolerating(Toleration(key="sla", operator="Lt", value="990")), True, True, id="by a comparison"),
        pytest.param(
            tolerating(Toleration(key="sla", operator="Lt", value="990")), False, False, id="without its gate"
        ),
        pytest.param(
            tolerating(Toleration(key="sla", operator="Gt", value="990")), True, False, id="by which it fails"
        ),
    ],
)
def test_taints(pod, comparisons, is_admitted):
    found = find_rejection(pod, [], taints=TAINTED, compares_taints=comparisons)
    assert (found is None) is is_admitted
    if found is not None:
        assert (found.reason, found.message) == ("TaintToleration", UNTOLERATED)
        assert found.measurements["taint"] == "sla=950:NoExecute"


def test_a_taint_that_only_keeps_pods_from_being_scheduled_is_not_looked_at():
    assert find_rejection(tolerating(), [], taints=TAINTED[:1]) is None


def secured(**context):
    return replace(make_pod(), spec=replace(make_pod().spec, security_context=PodSecurityContext(**context)))


UNSUPPORTED = Reject(
    "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
)


@pytest.mark.parametrize(
    ("pod", "is_supported", "expected"),
    [
        pytest.param(make_pod(), False, None, id="no security context"),
        pytest.param(secured(), False, None, id="no policy"),
        pytest.param(secured(supplemental_groups_policy="Merge"), False, None, id="as every runtime does"),
        pytest.param(secured(supplemental_groups_policy="Strict"), False, UNSUPPORTED, id="more than the runtime can"),
        pytest.param(secured(supplemental_groups_policy="Strict"), True, None, id="a runtime that can"),
    ],
)
def test_groups_of_the_image(pod, is_supported, expected):
    assert find_impossible(pod, has_groups_policy=is_supported) == expected


def many(count):
    return [make_pod(uid=f"uid-{number}", name=f"pod-{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("count", "max_pods", "message"),
    [
        pytest.param(1, 2, "", id="room for one more"),
        pytest.param(2, 2, "used: 2, capacity: 2", id="full"),
        pytest.param(3, 2, "used: 3, capacity: 2", id="more than full, as after a lower limit"),
        pytest.param(0, 0, "used: 0, capacity: 0", id="a node for no pods"),
    ],
)
def test_the_number_of_pods(count, max_pods, message):
    found = find_rejection(make_pod(uid="new"), many(count), max_pods=max_pods)
    shown = None if found is None else (found.reason, found.message)
    expected = "OutOfpods", f"Node didn't have enough resource: pods, requested: 1, {message}"
    assert shown == (expected if message else None)


def requesting(*, uid="new", source="", limits=None, overhead=None, **requests):
    texts = {name.replace("_", "-"): text for name, text in requests.items()}
    pod = make_pod(
        with_resources(make_container("main"), requests=texts, limits=limits or {}), uid=uid, name=uid, source=source
    )
    return (
        pod
        if overhead is None
        else replace(
            pod, spec=replace(pod.spec, overhead=convert(PodSpec, {"containers": [], "overhead": overhead}).overhead)
        )
    )


SMALL = a_node(cpu="10m", memory="20", pods="32", ephemeral_storage="20")
GPU = "example.com/gpu"


def shown(failures):
    return [(each.resource, each.requested, each.used, each.capacity) for each in failures]


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        pytest.param(requesting(), [requesting(cpu="10m", memory="20")], [], id="no requests on a full node"),
        pytest.param(
            requesting(cpu="8m", memory="10"),
            [requesting(cpu="5m", memory="19")],
            [("cpu", 8, 5, 10), ("memory", 10, 19, 20)],
            id="too little of two",
        ),
        pytest.param(requesting(cpu="5m"), [requesting(cpu="5m")], [], id="just enough"),
        pytest.param(
            requesting(cpu="100u"), [requesting(cpu="9900u")], [("cpu", 1, 10, 10)], id="each pod is rounded up"
        ),
        pytest.param(
            requesting(memory="1"), [requesting(cpu="90m", memory="1")], [], id="a resource that it does not request"
        ),
        pytest.param(
            requesting(ephemeral_storage="15"),
            [requesting(ephemeral_storage="6")],
            [("ephemeral-storage", 15, 6, 20)],
            id="local storage",
        ),
        pytest.param(
            requesting(cpu="1m", overhead={"cpu": "10m"}), [], [("cpu", 11, 0, 10)], id="with its own overhead"
        ),
        pytest.param(
            requesting(cpu="1m"),
            [requesting(cpu="1m", overhead={"cpu": "9m"})],
            [("cpu", 1, 10, 10)],
            id="with the overhead of others",
        ),
        pytest.param(
            requesting(hugepages_2Mi="2Mi"),
            [],
            [("hugepages-2Mi", 2097152, 0, 0)],
            id="huge pages that it does not have",
        ),
        pytest.param(requesting(**{GPU: "1"}), [], [], id="a device that the node does not know"),
        pytest.param(requesting(limits={GPU: "1"}), [], [], id="a device in limits alone"),
        pytest.param(
            requesting(**{"kubernetes.io/batch": "1"}),
            [],
            [("kubernetes.io/batch", 1, 0, 0)],
            id="a native resource that it does not know",
        ),
        pytest.param(
            requesting(storage="1Gi"),
            [],
            [],
            id="a resource that no node counts",
        ),
    ],
)
def test_resources(pod, others, expected):
    assert shown(failures_of(pod, others, SMALL)) == expected


def test_devices_that_the_node_has():
    node = a_node(**{GPU: "2", "example.com/disk": "0"})
    pod = requesting(**{GPU: "2", "example.com/disk": "1"})
    found = failures_of(pod, [requesting(uid="other", **{GPU: "1"})], node)
    assert shown(found) == [("example.com/disk", 1, 0, 0), (GPU, 2, 1, 2)]
    assert [str(each.reason) for each in found] == ["OutOfexample.com/disk", "OutOfexample.com/gpu"]


def test_the_words_of_a_shortage():
    found = decide(requesting(cpu="1500m"), [requesting(uid="other", cpu="1")], a_node(cpu="2"))
    assert found == Reject(
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
        {
            "why": "the pod requests 1500m of cpu; the node has 2 for pods, of which others have 1",
            "resource": "cpu",
            "requested": 1500,
            "used": 1000,
            "capacity": 2000,
        },
    )
    memory = ResourceDemand(resource="memory", requested=3 << 29, used=1 << 30, capacity=2 << 30)
    assert memory.why == "the pod requests 1536Mi of memory; the node has 2Gi for pods, of which others have 1Gi"
    pods = ResourceDemand(resource="pods", requested=1, used=3, capacity=3)
    assert pods.why == "the node has room for 3 pods, and 3 are there"


def resizing(spec, actual, allocated, *, infeasible=False):
    conditions = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}] if infeasible else []
    status = {
        "containerStatuses": [
            {
                "name": "main",
                "image": "i",
                "imageID": "i",
                "ready": True,
                "restartCount": 0,
                "resources": {"requests": {"cpu": actual}},
                "allocatedResources": {"cpu": allocated},
            }
        ],
        "conditions": conditions,
    }
    return replace(requesting(uid="other", cpu=spec), status=convert(PodStatus, status))


@pytest.mark.parametrize(
    ("other", "used"),
    [
        pytest.param(resizing("3m", "2m", "1m"), 3, id="what the spec asks for"),
        pytest.param(resizing("1m", "3m", "2m"), 3, id="what the container has"),
        pytest.param(resizing("1m", "2m", "3m"), 3, id="what it was given"),
        pytest.param(resizing("9m", "2m", "3m", infeasible=True), 3, id="not what it will never get"),
    ],
)
def test_a_pod_that_is_resized_takes_the_most(other, used):
    assert used_by([other]) == {"cpu": used}


def placed(**spec):
    return replace(make_pod(), spec=replace(make_pod().spec, **spec))


def test_the_name_of_the_node():
    [found] = failures_of(placed(node_name="machine2"))
    assert (found.reason, found.message) == (
        "NodeName",
        "Predicate NodeName failed: node(s) didn't match the requested node name",
    )
    assert found.measurements["why"] == "the pod names node machine2, and this is machine1"
    assert failures_of(placed(node_name="machine1")) == ()


@pytest.mark.parametrize(
    ("selector", "labels", "why"),
    [
        pytest.param({"disk": "ssd"}, {"disk": "ssd"}, "", id="that it has"),
        pytest.param(
            {"disk": "ssd"}, {}, "nodeSelector asks for the label disk=ssd, and the node has no label disk", id="none"
        ),
        pytest.param(
            {"disk": "ssd"},
            {"disk": "hdd"},
            "nodeSelector asks for the label disk=ssd, and the node has disk=hdd",
            id="another value",
        ),
    ],
)
def test_labels_of_the_node(selector, labels, why):
    found = check_affinity(placed(node_selector=selector), a_node(labels))
    assert (found.measurements["why"] if found else "") == why
    if found:
        assert (found.reason, found.message) == (
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        )


def test_only_labels_are_worth_reading_the_node_again():
    lost, elsewhere = placed(node_selector={"disk": "ssd"}), placed(node_selector={"disk": "ssd"}, node_name="other")
    assert needs_fresh_node(failures_of(lost))
    assert [str(each.reason) for each in failures_of(elsewhere)] == ["NodeAffinity", "NodeName"]
    assert not needs_fresh_node(failures_of(elsewhere))
    assert not needs_fresh_node(())


def test_the_label_of_the_operating_system_is_taken_as_it_must_be():
    assert with_own_system(a_node({"kubernetes.io/os": "x", "a": "b"})).metadata.labels == {
        "kubernetes.io/os": "linux",
        "a": "b",
    }
    bare = a_node()
    assert with_own_system(bare) is bare


def test_everything_that_speaks_against_a_pod_in_order():
    pod = replace(using(port(80)), metadata=ObjectMeta(name="p", uid="new"))
    pod = replace(
        pod,
        spec=replace(
            pod.spec,
            containers=(with_resources(pod.spec.containers[0], requests={"cpu": "9", "memory": "9Gi"}),),
            node_name="other",
            node_selector={"a": "b"},
        ),
    )
    node = a_node(pods="1", taints=TAINTED)
    found = [str(as_rejection(each).reason) for each in failures_of(pod, [using(port(80))], node)]
    expected = ["OutOfpods", "OutOfcpu", "OutOfmemory", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration"]
    assert found == expected
    assert decide(pod, [using(port(80))], node).reason == "OutOfpods"
    critical = replace(pod, spec=replace(pod.spec, priority=2_000_000_000))
    assert decide(critical, [using(port(80))], node).reason == "NodeAffinity"


def test_another_pod_makes_room_for_a_critical_one():
    other = make_pod(uid="other")
    verdict = find_rejection(make_pod(uid="new", source="file"), [other], max_pods=1)
    assert isinstance(verdict, Preempt)
    assert verdict.victims == (other,)


def test_no_pod_makes_room_for_one_that_is_rejected_anyway():
    new = replace(using(port(80)), metadata=make_pod(source="file").metadata)
    assert find_rejection(new, [using(port(80))], max_pods=1).reason == "NodePorts"


def test_a_critical_pod_beside_critical_pods():
    verdict = find_rejection(make_pod(uid="new", source="file"), [make_pod(uid="other", source="file")], max_pods=1)
    message = (
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods "
        "to preempt: no set of running pods found to reclaim resources: [(res: pods, q: 1), ]"
    )
    assert (verdict.reason, verdict.message) == ("UnexpectedAdmissionError", message)
