"""Which pods a node refuses for what they bring along themselves."""

import pytest
from msgspec.structs import replace

from klet.admission.checks import (
    AppArmorCheck,
    FeatureCheck,
    SysctlCheck,
    check_app_armor,
    check_features,
    check_sysctls,
)
from klet.api.codec import convert
from klet.api.container import EphemeralContainer
from klet.api.pod import Pod, PodStatus
from klet.api.security import AppArmorProfile, PodSecurityContext, SecurityContext, Sysctl
from klet.model.verdicts import Admit, Reject
from klet.testing.builders import make_container, make_pod

FEATURE_OFF = Reject("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
ARMOR = "container.apparmor.security.beta.kubernetes.io/"


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
    assert check_features(pod, pod_level_resources=False) == expected
    assert check_features(pod, pod_level_resources=True) is None


def secured(**context):
    return replace(make_pod(), spec=replace(make_pod().spec, security_context=PodSecurityContext(**context)))


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
    assert check_app_armor(pod, is_enabled=is_enabled) == expected


async def test_the_checks_as_admission_handlers():
    assert await SysctlCheck(allowed=()).admit(tuned("kernel.sem"), []) == check_sysctls(
        tuned("kernel.sem"), allowed=()
    )
    assert await SysctlCheck(allowed=("kernel.sem",)).admit(tuned("kernel.sem"), []) == Admit()
    pod = armored("RuntimeDefault")
    assert await AppArmorCheck(is_enabled=False).admit(pod, []) == check_app_armor(pod, is_enabled=False)
    assert await AppArmorCheck(is_enabled=True).admit(pod, []) == Admit()
    pod = convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [], "resources": {"limits": {"cpu": "1"}}}})
    assert await FeatureCheck(pod_level_resources=False).admit(pod, []) == FEATURE_OFF
    assert await FeatureCheck(pod_level_resources=True).admit(pod, []) == Admit()
