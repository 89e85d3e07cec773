"""The configuration of a pod's sandbox."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerPort
from klet.api.pod import Pod
from klet.api.security import PodSecurityContext, SecurityContext, SELinuxOptions, Sysctl
from klet.model.allocation import PodAllocation, desired_allocation
from klet.model.network import DnsConfig
from klet.runtime.config.sandbox_config import (
    SandboxSettings,
    build_sandbox_config,
    hostname_and_domain,
    hostname_of,
    namespace_options,
    port_mappings,
)
from klet.runtime.errors import SandboxConfigError
from klet.testing.builders import make_container, make_pod
from klet.wire import cri_v1_pb2 as cri

SETTINGS = SandboxSettings(logs=Path("/logs"), cluster_domain="cluster.local")


def pod_with(**spec) -> Pod:
    pod = make_pod(name="web", uid="u-1")
    return replace(pod, spec=replace(pod.spec, **spec))


def built(pod: Pod, **more) -> cri.PodSandboxConfig:
    dns = DnsConfig(("10.0.0.10",), ("a", "b"), ("ndots:5",))
    parent = "/kubepods/podu-1"
    return build_sandbox_config(
        pod, desired_allocation(pod), attempt=2, dns=dns, cgroup_parent=parent, settings=SETTINGS, **more
    )


def test_a_plain_pod():
    pod = pod_with()
    pod = replace(pod, metadata=replace(pod.metadata, labels={"app": "x"}, annotations={"note": "y"}))
    config = built(pod)
    assert config.metadata == cri.PodSandboxMetadata(name="web", namespace="default", uid="u-1", attempt=2)
    assert config.hostname == "web"
    assert config.log_directory == "/logs/default_web_u-1"
    assert config.dns_config == cri.DNSConfig(servers=["10.0.0.10"], searches=["a", "b"], options=["ndots:5"])
    assert config.labels["app"] == "x"
    assert config.labels["io.kubernetes.pod.uid"] == "u-1"
    assert dict(config.annotations) == {"note": "y"}
    assert config.linux.cgroup_parent == "/kubepods/podu-1"
    security = config.linux.security_context
    assert not security.privileged
    assert security.seccomp.profile_type == cri.SecurityProfile.RuntimeDefault
    assert not security.HasField("run_as_user")


def test_a_pod_on_the_hosts_network_keeps_the_hosts_name():
    assert built(pod_with(host_network=True)).hostname == ""


LONG = "a" * 62


@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        pytest.param("web", {}, ("web", ""), id="the pod's name"),
        pytest.param("web", {"hostname": "h"}, ("h", ""), id="the pod's own host name"),
        pytest.param("web", {"subdomain": "s"}, ("web", "s.default.svc.cluster.local"), id="a subdomain"),
        pytest.param(
            "web",
            {"hostname_override": "x.y", "hostname": "h", "subdomain": "s"},
            ("x.y", ""),
            id="an override has no domain",
        ),
        pytest.param("web", {"hostname_override": "b" * 70}, ("b" * 63, ""), id="a long override is cut"),
        pytest.param("a" * 72, {}, ("a" * 63, ""), id="a long name is cut"),
        pytest.param(LONG + ".b", {}, (LONG, ""), id="a dot at the cut goes"),
        pytest.param(LONG + "-b", {}, (LONG, ""), id="a dash at the cut goes"),
    ],
)
def test_host_name_and_domain(name, spec, expected):
    pod = pod_with(**spec)
    pod = replace(pod, metadata=replace(pod.metadata, name=name))
    assert hostname_and_domain(pod, cluster_domain="cluster.local") == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"subdomain": "s"}, "web", id="short, unless asked otherwise"),
        pytest.param({"subdomain": "s", "set_hostname_as_fqdn": True}, "web.s.default.svc.cluster.local", id="full"),
        pytest.param({"set_hostname_as_fqdn": True}, "web", id="there is no full name without a subdomain"),
    ],
)
def test_kernel_host_name(spec, expected):
    assert hostname_of(pod_with(**spec), cluster_domain="cluster.local") == expected


def test_a_full_name_that_the_kernel_cannot_take():
    pod = pod_with(subdomain="s" * 40, set_hostname_as_fqdn=True)
    fqdn = f"web.{'s' * 40}.default.svc.cluster.local"
    with pytest.raises(SandboxConfigError) as caught:
        built(pod)
    assert str(caught.value) == (
        "failed to construct FQDN from pod hostname and cluster domain, "
        f"FQDN {fqdn} is too long (64 characters is the max, {len(fqdn)} characters requested)"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (cri.POD, cri.POD, cri.CONTAINER), id="all its own"),
        pytest.param({"host_network": True}, (cri.NODE, cri.POD, cri.CONTAINER), id="the host's network"),
        pytest.param({"host_ipc": True}, (cri.POD, cri.NODE, cri.CONTAINER), id="the host's IPC"),
        pytest.param({"host_pid": True}, (cri.POD, cri.POD, cri.NODE), id="the host's processes"),
        pytest.param({"share_process_namespace": True}, (cri.POD, cri.POD, cri.POD), id="shared processes"),
        pytest.param({"share_process_namespace": False}, (cri.POD, cri.POD, cri.CONTAINER), id="not shared"),
    ],
)
def test_namespaces(spec, expected):
    options = namespace_options(pod_with(**spec))
    assert (options.network, options.ipc, options.pid) == expected
    assert built(pod_with(**spec)).linux.security_context.namespace_options == options


def port(number: int, *, name: str = "", host: int = 0, ip: str = "", protocol: str = "TCP") -> ContainerPort:
    return ContainerPort(container_port=number, name=name, host_port=host, host_ip=ip, protocol=protocol)


def test_ports_of_the_regular_containers():
    one = replace(
        make_container("a"),
        ports=(
            port(80, name="web", host=8080, ip="10.0.0.1"),
            port(81, name="web"),
            port(53, protocol="UDP"),
            port(53, protocol="UDP"),
            port(53, protocol="SCTP"),
            port(90, protocol="ODD"),
        ),
    )
    two = replace(make_container("b"), ports=(port(82, name="web"),))
    first = replace(make_container("i"), ports=(port(99, host=99),))
    found = [
        (mapping.protocol, mapping.container_port, mapping.host_port, mapping.host_ip)
        for mapping in port_mappings(make_pod(one, two, init=[first]))
    ]
    assert found == [
        (cri.TCP, 80, 8080, "10.0.0.1"),
        (cri.UDP, 53, 0, ""),
        (cri.SCTP, 53, 0, ""),
        (cri.TCP, 90, 0, ""),
        (cri.TCP, 82, 0, ""),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("kernel.shm_rmid_forced", "kernel.shm_rmid_forced", id="dots stay"),
        pytest.param("net/ipv4/ip_forward", "net.ipv4.ip_forward", id="slashes become dots"),
        pytest.param("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter", id="and dots slashes"),
        pytest.param(
            "net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter", id="the first one decides"
        ),
    ],
)
def test_names_of_sysctls(name, expected):
    context = PodSecurityContext(sysctls=(Sysctl(name=name, value="1"),))
    assert dict(built(pod_with(security_context=context)).linux.sysctls) == {expected: "1"}


def test_security_of_the_pod():
    context = PodSecurityContext(
        run_as_user=1,
        run_as_group=2,
        fs_group=3,
        supplemental_groups=(4, 5),
        supplemental_groups_policy="Strict",
        se_linux_options=SELinuxOptions(type="t"),
    )
    security = built(pod_with(security_context=context)).linux.security_context
    assert security.run_as_user.value == 1
    assert security.run_as_group.value == 2
    assert list(security.supplemental_groups) == [3, 4, 5]
    assert security.supplemental_groups_policy == cri.Strict
    assert security.selinux_options.type == "t"


@pytest.mark.parametrize("where", ["containers", "init_containers"])
def test_one_privileged_container_makes_a_privileged_sandbox(where):
    container = replace(make_container("c"), security_context=SecurityContext(privileged=True))
    assert built(pod_with(**{where: (container,)})).linux.security_context.privileged


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"hostname": "a.b"}, 'pod Hostname "a.b" is not a valid DNS label: ', id="a host name"),
        pytest.param({"subdomain": "A"}, 'pod Subdomain "A" is not a valid DNS label: ', id="a subdomain"),
        pytest.param(
            {"hostname_override": "a_b"},
            'pod HostnameOverride "a_b" is not a valid DNS subdomain: ',
            id="an override",
        ),
    ],
)
def test_names_that_cannot_be(spec, message):
    with pytest.raises(SandboxConfigError) as caught:
        built(pod_with(**spec))
    assert str(caught.value).startswith(message)


def test_an_unknown_policy_of_groups():
    context = PodSecurityContext(supplemental_groups_policy="Odd")
    with pytest.raises(SandboxConfigError, match="unsupported supplementalGroupsPolicy: Odd"):
        built(pod_with(security_context=context))


def test_a_user_namespace_is_passed_to_the_runtime():
    mapping = cri.IDMapping(host_id=65536, container_id=0, length=65536)
    users = cri.UserNamespace(mode=cri.POD, uids=[mapping], gids=[mapping])
    config = build_sandbox_config(
        pod_with(),
        PodAllocation(),
        attempt=0,
        dns=DnsConfig(),
        cgroup_parent="",
        settings=SETTINGS,
        user_namespace=users,
    )
    assert config.linux.security_context.namespace_options.userns_options == users


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (cri.TARGET, "abc"), id="the processes of its target"),
        pytest.param({"share_process_namespace": True}, (cri.POD, ""), id="all processes of the pod anyway"),
        pytest.param({"host_pid": True}, (cri.NODE, ""), id="all processes of the host anyway"),
    ],
)
def test_a_container_that_looks_into_another(spec, expected):
    options = namespace_options(pod_with(**spec), target_id="abc")
    assert (options.pid, options.target_id) == expected


def test_groups_of_volumes_stand_between_those_of_the_pod():
    context = PodSecurityContext(fs_group=3, supplemental_groups=(4,))
    security = built(pod_with(security_context=context), extra_groups=(5555,)).linux.security_context
    assert list(security.supplemental_groups) == [3, 5555, 4]


def test_a_pod_without_a_security_context_has_no_groups_in_its_sandbox():
    security = built(pod_with(), extra_groups=(5555,)).linux.security_context
    assert list(security.supplemental_groups) == []
