"""The CRI configuration of a pod's sandbox (generatePodSandboxConfig)."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from klet.api.container import Container, ContainerPort, EphemeralContainer
from klet.api.pod import Pod
from klet.api.security import PodSecurityContext, SELinuxOptions
from klet.api.sysctls import normalize_sysctl
from klet.api.validation import formats
from klet.model.allocation import PodAllocation
from klet.model.network import DnsConfig
from klet.runtime import labels
from klet.runtime.config.linux_resources import ResourceRules, build_overhead, build_sandbox_resources
from klet.runtime.errors import SandboxConfigError
from klet.wire import cri_v1_pb2 as cri

_HOSTNAME_LIMIT = 63
_FQDN_LIMIT = 64
_PROTOCOLS = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """What the node adds to every sandbox."""

    logs: Path
    cluster_domain: str = ""
    resources: ResourceRules = field(default_factory=ResourceRules)
    names_image_handlers: bool = False
    """Whether requests name the handler with which an image is used (RuntimeClassInImageCriApi)."""


def build_sandbox_config(
    pod: Pod,
    allocation: PodAllocation,
    *,
    attempt: int,
    dns: DnsConfig,
    cgroup_parent: str,
    settings: SandboxSettings,
    lifts_quota: bool = False,
    user_namespace: cri.UserNamespace | None = None,
    extra_groups: Sequence[int] = (),
) -> cri.PodSandboxConfig:
    """Describe the sandbox to the runtime."""
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid, attempt=attempt
        ),
        labels=labels.sandbox_labels(pod),
        annotations=dict(pod.metadata.annotations),
        log_directory=str(labels.pod_log_directory(settings.logs, pod)),
        dns_config=cri.DNSConfig(servers=dns.servers, searches=dns.searches, options=dns.options),
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent,
            security_context=_security(pod, user_namespace, extra_groups),
            sysctls=_sysctls(pod),
            resources=build_sandbox_resources(allocation, settings.resources, lifts_quota=lifts_quota),
            overhead=build_overhead(allocation, settings.resources),
        ),
    )
    if not pod.spec.host_network:
        config.hostname = hostname_of(pod, cluster_domain=settings.cluster_domain)
    config.port_mappings.extend(port_mappings(pod))
    return config


def hostname_of(pod: Pod, *, cluster_domain: str) -> str:
    """Return the kernel host name of the pod."""
    host, domain = hostname_and_domain(pod, cluster_domain=cluster_domain)
    if not (pod.spec.set_hostname_as_fqdn and domain):
        return host
    fqdn = f"{host}.{domain}"
    if len(fqdn) > _FQDN_LIMIT:
        message = (
            "failed to construct FQDN from pod hostname and cluster domain, "
            f"FQDN {fqdn} is too long ({_FQDN_LIMIT} characters is the max, {len(fqdn)} characters requested)"
        )
        raise SandboxConfigError(message)
    return fqdn


def hostname_and_domain(pod: Pod, *, cluster_domain: str) -> tuple[str, str]:
    """Return the short host name, and the domain if the pod has a subdomain."""
    spec = pod.spec
    if spec.hostname_override is not None:
        _check("HostnameOverride", spec.hostname_override, "DNS subdomain", formats.dns_subdomain)
        return _shortened(spec.hostname_override), ""
    if spec.hostname:
        _check("Hostname", spec.hostname, "DNS label", formats.dns_label)
    host = _shortened(spec.hostname or pod.metadata.name)
    if not spec.subdomain:
        return host, ""
    _check("Subdomain", spec.subdomain, "DNS label", formats.dns_label)
    return host, f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"


def _check(field_name: str, value: str, kind: str, find_problems: Callable[[str], Sequence[str]]) -> None:
    if problems := find_problems(value):
        raise SandboxConfigError(f'pod {field_name} "{value}" is not a valid {kind}: {";".join(problems)}')


def _shortened(name: str) -> str:
    """Shorten a host name to what the kernel takes; it must not end with a separator."""
    return name if len(name) <= _HOSTNAME_LIMIT else name[:_HOSTNAME_LIMIT].rstrip("-.")


def port_mappings(pod: Pod) -> list[cri.PortMapping]:
    """Return ports of the regular containers; a name repeated within a container counts once."""
    mappings = []
    for container in pod.spec.containers:
        seen: set[str] = set()
        for port in container.ports:
            key = port.name or _port_key(port)
            if key in seen:
                continue
            seen.add(key)
            mappings.append(
                cri.PortMapping(
                    protocol=_PROTOCOLS.get(port.protocol, cri.TCP),
                    container_port=port.container_port,
                    host_port=port.host_port or 0,
                    host_ip=port.host_ip,
                )
            )
    return mappings


def _port_key(port: ContainerPort) -> str:
    family = "any" if not port.host_ip else "v6" if ":" in port.host_ip else "v4"
    return f"{family}-{port.protocol}-{port.host_ip}:{port.container_port}:{port.host_port}"


def namespace_options(
    pod: Pod, *, user_namespace: cri.UserNamespace | None = None, target_id: str = ""
) -> cri.NamespaceOption:
    """Return what the pod shares with the host, and its containers with one another and with a target."""
    pid = cri.NODE if pod.spec.host_pid else cri.POD if pod.spec.share_process_namespace else cri.CONTAINER
    if target_id and pid == cri.CONTAINER:
        pid = cri.TARGET
    return cri.NamespaceOption(
        network=cri.NODE if pod.spec.host_network else cri.POD,
        ipc=cri.NODE if pod.spec.host_ipc else cri.POD,
        pid=pid,
        target_id=target_id if pid == cri.TARGET else "",
        userns_options=user_namespace,
    )


def _security(
    pod: Pod, user_namespace: cri.UserNamespace | None, extra_groups: Sequence[int]
) -> cri.LinuxSandboxSecurityContext:
    every: list[Container | EphemeralContainer] = [
        *pod.spec.containers,
        *pod.spec.init_containers,
        *pod.spec.ephemeral_containers,
    ]
    context = cri.LinuxSandboxSecurityContext(
        namespace_options=namespace_options(pod, user_namespace=user_namespace),
        privileged=any(c.security_context is not None and bool(c.security_context.privileged) for c in every),
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
    )
    wanted = pod.spec.security_context
    if wanted is None:
        return context
    if wanted.run_as_user is not None:
        context.run_as_user.value = wanted.run_as_user
    if wanted.run_as_group is not None:
        context.run_as_group.value = wanted.run_as_group
    groups = [] if wanted.fs_group is None else [wanted.fs_group]
    context.supplemental_groups.extend([*groups, *extra_groups, *wanted.supplemental_groups])
    context.supplemental_groups_policy = groups_policy(wanted)
    if (selinux := selinux_options(wanted.se_linux_options)) is not None:
        context.selinux_options.CopyFrom(selinux)
    return context


def groups_policy(wanted: PodSecurityContext) -> cri.SupplementalGroupsPolicy:
    match wanted.supplemental_groups_policy:
        case None | "Merge":
            return cri.Merge
        case "Strict":
            return cri.Strict
        case unknown:
            raise SandboxConfigError(f"unsupported supplementalGroupsPolicy: {unknown}")


def selinux_options(wanted: SELinuxOptions | None) -> cri.SELinuxOption | None:
    if wanted is None:
        return None
    return cri.SELinuxOption(user=wanted.user, role=wanted.role, type=wanted.type, level=wanted.level)


def _sysctls(pod: Pod) -> dict[str, str]:
    wanted = pod.spec.security_context.sysctls if pod.spec.security_context else ()
    return {normalize_sysctl(sysctl.name): sysctl.value for sysctl in wanted}
