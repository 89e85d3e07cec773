"""Which pods a node refuses."""

import re

import pytest
from msgspec.structs import replace

from klet.admission.checks import NodeChecks, NodeFacts, check_sysctls, decide_admission
from klet.allocation.book import AllocationBook
from klet.api.codec import convert
from klet.api.container import ContainerPort, EphemeralContainer
from klet.api.meta import ObjectMeta
from klet.api.placement import Taint, Toleration
from klet.api.pod import Pod, PodOS, PodStatus
from klet.api.security import AppArmorProfile, PodSecurityContext, SecurityContext, Sysctl
from klet.model.verdicts import Admit, Preempt, Reject
from klet.testing.builders import make_container, make_pod

PORTS = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
OS_FIELD = Reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
FEATURE_OFF = Reject("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
OS_LABEL = Reject(
    "PodOSSelectorNodeLabelDoesNotMatch",
    "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
)

ROOMY = NodeFacts(max_pods=110)
ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def find_rejection(pod, others, **facts):
    """The reason against a pod on a node with room; None if it is admitted."""
    verdict = decide_admission(pod, others, replace(ROOMY, **facts), AllocationBook())
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
    assert find_rejection(pod, []) == expected


def tuned(*names, **spec):
    context = PodSecurityContext(sysctls=tuple(Sysctl(name=name, value="1") for name in names))
    return replace(make_pod(), spec=replace(make_pod().spec, security_context=context, **spec))


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(tuned("net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced"), "", id="safe ones"),
        pytest.param(tuned("net/ipv4/tcp_rmem"), "", id="a safe one with slashes"),
        pytest.param(tuned("kernel.msgmax"), '"kernel.msgmax" not allowlisted', id="one that is not safe"),
        pytest.param(
            tuned("net.ipv4.tcp_syncookies", "net/core/somaxconn"),
            '"net.core.somaxconn" not allowlisted',
            id="the second",
        ),
        pytest.param(tuned("net.ipv6.conf.all.mtu", "kernel.sem"), "", id="what the configuration allows"),
        pytest.param(tuned("kernel.panic"), '"kernel.panic" not allowlisted', id="the machine's own"),
        pytest.param(
            tuned("net.ipv4.tcp_syncookies", host_network=True),
            '"net.ipv4.tcp_syncookies" not allowed with host Net enabled',
            id="in the network of the host",
        ),
        pytest.param(
            tuned("kernel.sem", host_ipc=True), '"kernel.sem" not allowed with host IPC enabled', id="in the host's IPC"
        ),
        pytest.param(tuned("kernel.sem", host_network=True), "", id="another namespace of the host"),
    ],
)
def test_kernel_parameters(pod, why):
    expected = Reject("SysctlForbidden", f"forbidden sysctl: {why}") if why else None
    assert check_sysctls(pod, allowed=("net.ipv6.*", "kernel.sem")) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"limits": {"cpu": "1"}}, FEATURE_OFF, id="a limit of the pod"),
        pytest.param({"requests": {"hugepages-2Mi": "4Mi"}}, FEATURE_OFF, id="a request of the pod"),
        pytest.param({"requests": {"example.com/gpu": "1"}}, None, id="what no pod can have does not count"),
        pytest.param({}, None, id="nothing in it"),
        pytest.param(None, None, id="none"),
    ],
)
def test_resources_of_the_pod_need_their_gate(resources, expected):
    pod = convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [], "resources": resources}})
    assert find_rejection(pod, [], has_pod_level_resources=False) == expected
    assert find_rejection(pod, []) is None


async def test_the_checks_as_a_voice_in_admission():
    checks = NodeChecks(facts=lambda: ROOMY, allocations=AllocationBook())
    assert await checks.admit(make_pod(), []) == Admit()
    assert isinstance(await checks.admit(using(port(80)), [using(port(80))]), Reject)
    gated = NodeChecks(facts=lambda: replace(ROOMY, has_pod_level_resources=False), allocations=AllocationBook())
    pod = convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [], "resources": {"limits": {"cpu": "1"}}}})
    assert await gated.admit(pod, []) == FEATURE_OFF


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
    assert find_rejection(pod, [], has_groups_policy=is_supported) == expected


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
    expected = Reject("OutOfpods", f"Node didn't have enough resource: pods, requested: 1, {message}")
    assert find_rejection(make_pod(uid="new"), many(count), max_pods=max_pods) == (expected if message else None)


def armored(kind, name=None, *, phase="Pending", where="pod"):
    profile = AppArmorProfile(type=kind, localhost_profile=name)
    context = SecurityContext(app_armor_profile=profile)
    container = replace(make_container("main"), security_context=context)
    match where:
        case "pod":
            pod = secured(app_armor_profile=profile)
        case "container":
            pod = make_pod(container)
        case "init":
            pod = make_pod(init=(replace(container, name="first"),))
        case _:
            debugger = EphemeralContainer(name="debugger", image="i", security_context=context)
            pod = replace(make_pod(), spec=replace(make_pod().spec, ephemeral_containers=(debugger,)))
    return replace(pod, status=PodStatus(phase=phase))


def annotated(value):
    return replace(make_pod(), metadata=replace(make_pod().metadata, annotations={f"{ARMOR}main": value}))


OFF = "AppArmor is not enabled on the host"


@pytest.mark.parametrize(
    ("pod", "is_enabled", "why"),
    [
        pytest.param(make_pod(), False, "", id="no profile"),
        pytest.param(armored("Unconfined"), False, "", id="none at all is no profile"),
        pytest.param(armored("RuntimeDefault"), False, OFF, id="the runtime's own, without AppArmor"),
        pytest.param(armored("RuntimeDefault"), True, "", id="the runtime's own"),
        pytest.param(armored("Localhost", "strict"), False, OFF, id="one of the host, without AppArmor"),
        pytest.param(armored("RuntimeDefault", where="container"), False, OFF, id="of a container"),
        pytest.param(armored("RuntimeDefault", where="init"), False, OFF, id="of an init container"),
        pytest.param(armored("RuntimeDefault", where="ephemeral"), False, OFF, id="of an ephemeral container"),
        pytest.param(annotated("runtime/default"), False, OFF, id="of an annotation"),
        pytest.param(annotated("unconfined"), False, "", id="an annotation that wants none"),
        pytest.param(armored("RuntimeDefault", phase="Running"), False, "", id="a pod that ran before is left alone"),
        pytest.param(armored("RuntimeDefault", phase=""), False, OFF, id="a static pod has no phase yet"),
        pytest.param(armored("Localhost", "strict"), True, "", id="one of the host"),
        pytest.param(
            armored("Localhost"),
            True,
            'invalid empty AppArmor profile name: "&AppArmorProfile{Type:Localhost,LocalhostProfile:nil,}"',
            id="one of the host without a name",
        ),
        pytest.param(
            annotated("localhost/ "),
            True,
            'invalid empty AppArmor profile name: "&AppArmorProfile{Type:Localhost,LocalhostProfile:* ,}"',
            id="an annotation without a name",
        ),
    ],
)
def test_app_armor(pod, is_enabled, why):
    expected = Reject("AppArmor", f"Cannot enforce AppArmor: {why}") if why else None
    assert find_rejection(pod, [], has_app_armor=is_enabled) == expected


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(
            replace(
                secured(supplemental_groups_policy="Strict"), metadata=ObjectMeta(labels={"kubernetes.io/os": "x"})
            ),
            "PodOSSelectorNodeLabelDoesNotMatch",
            id="then the operating system",
        ),
        pytest.param(
            secured(supplemental_groups_policy="Strict", app_armor_profile=AppArmorProfile(type="RuntimeDefault")),
            "SupplementalGroupsPolicyNotSupported",
            id="then what the runtime cannot do",
        ),
        pytest.param(using(port(80)), "OutOfpods", id="then the number of pods"),
        pytest.param(armored("RuntimeDefault"), "OutOfpods", id="AppArmor after that"),
    ],
)
def test_the_first_reason_counts(pod, reason):
    assert find_rejection(pod, [using(port(80))], max_pods=1).reason == reason


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
