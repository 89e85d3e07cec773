"""Rules for a pod spec as a whole, in the order in which the API server reports them."""

from typing import Final

from klet.api.meta import ObjectMeta
from klet.api.pod import HostAlias, PodDNSConfig, PodSpec
from klet.api.validation import formats
from klet.api.validation.claims import validate_resource_claims
from klet.api.validation.containers import (
    ContainerScope,
    validate_containers,
    validate_ephemeral_containers,
    validate_host_network_ports,
    validate_init_containers,
)
from klet.api.validation.errors import (
    FieldErrors,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_long,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import validate_labels
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.placement import (
    validate_affinity,
    validate_readiness_gates,
    validate_scheduling_gates,
    validate_tolerations,
    validate_topology_spread,
)
from klet.api.validation.resources import validate_overhead, validate_pod_resources
from klet.api.validation.security import validate_pod_security_context
from klet.api.validation.visiting import containers_with_paths
from klet.api.validation.volumes import validate_volumes
from klet.api.validation.windows import validate_host_process, validate_os

MAX_INT32: Final = 2**31 - 1
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
_NAMESERVERS_LIMIT: Final = 3
_SEARCHES_LIMIT: Final = 32
_SEARCH_LIST_LIMIT: Final = 2048
_HOSTNAME_LIMIT: Final = 64


def validate_pod_spec(spec: PodSpec, meta: ObjectMeta, path: FieldPath, options: PodValidationOptions) -> FieldErrors:
    if spec.termination_grace_period_seconds is None:
        yield required(path.child("terminationGracePeriodSeconds"))
    volumes, errors = validate_volumes(spec.volumes, meta, path.child("volumes"), options)
    yield from errors
    scope = ContainerScope(
        spec=spec,
        volumes=volumes,
        options=options,
        claim_names=frozenset(claim.name for claim in spec.resource_claims if claim.name),
        host_users=spec.host_users is not False,
    )
    yield from validate_resource_claims(spec.resource_claims, path.child("resourceClaims"))
    yield from validate_containers(scope, path.child("containers"))
    yield from validate_init_containers(scope, path.child("initContainers"))
    yield from validate_ephemeral_containers(scope, path.child("ephemeralContainers"))
    if spec.resources is not None:
        yield from validate_pod_resources(spec, spec.resources, path.child("resources"))
    yield from validate_host_network_ports(scope, path)
    yield from _one_of(spec.restart_policy, _RESTART_POLICIES, path.child("restartPolicy"))
    yield from _one_of(spec.dns_policy, _DNS_POLICIES, path.child("dnsPolicy"))
    yield from validate_labels(spec.node_selector, path.child("nodeSelector"))
    if spec.security_context is not None:
        yield from validate_pod_security_context(spec, spec.security_context, path.child("securityContext"))
    yield from validate_affinity(spec.affinity, path.child("affinity"))
    yield from _dns_config(spec.dns_config, spec.dns_policy, path.child("dnsConfig"))
    yield from validate_readiness_gates(spec.readiness_gates, path.child("readinessGates"))
    yield from validate_scheduling_gates(spec.scheduling_gates, path.child("schedulingGates"))
    yield from validate_topology_spread(spec.topology_spread_constraints, path.child("topologySpreadConstraints"))
    yield from validate_host_process(spec, path, options)
    yield from _host_users(spec, path, options)
    yield from _hostname_override(spec, path.child("hostnameOverride"))
    yield from _names(spec, path, options)


def _names(spec: PodSpec, path: FieldPath, options: PodValidationOptions) -> FieldErrors:
    yield from _subdomain(spec.service_account_name, path.child("serviceAccountName"))
    yield from _subdomain(spec.node_name, path.child("nodeName"))
    if (seconds := spec.active_deadline_seconds) is not None and not 1 <= seconds <= MAX_INT32:
        yield invalid(path.child("activeDeadlineSeconds"), seconds, formats.between(1, MAX_INT32))
    for wire_name, label in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        if label:
            yield from invalid_each(path.child(wire_name), label, formats.dns_label(label))
    yield from validate_tolerations(spec.tolerations, path.child("tolerations"), comparisons=options.taint_comparisons)
    yield from _host_aliases(spec.host_aliases, path.child("hostAliases"))
    yield from _subdomain(spec.priority_class_name, path.child("priorityClassName"))
    if (name := spec.runtime_class_name) is not None:
        yield from invalid_each(path.child("runtimeClassName"), name, formats.dns_subdomain(name))
    if spec.preemption_policy is not None:
        yield from _one_of(spec.preemption_policy, _PREEMPTION_POLICIES, path.child("preemptionPolicy"))
    if spec.overhead:
        yield from validate_overhead(spec.overhead, path.child("overhead"))
    yield from validate_os(spec, path)


def _one_of(value: str, supported: tuple[str, ...], path: FieldPath) -> FieldErrors:
    if not value:
        yield required(path)
    elif value not in supported:
        yield not_supported(path, value, supported)


def _subdomain(name: str, path: FieldPath) -> FieldErrors:
    if name:
        yield from invalid_each(path, name, formats.dns_subdomain(name))


def _dns_config(config: PodDNSConfig | None, policy: str, path: FieldPath) -> FieldErrors:
    if config is None:
        if policy == "None":
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    servers, searches = path.child("nameservers"), path.child("searches")
    if policy == "None" and not config.nameservers:
        yield required(servers, "must provide at least one DNS nameserver when `dnsPolicy` is None")
        return
    if len(config.nameservers) > _NAMESERVERS_LIMIT:
        yield invalid(servers, config.nameservers, f"must not have more than {_NAMESERVERS_LIMIT} nameservers")
    for position, server in enumerate(config.nameservers):
        yield from invalid_each(servers.at(position), server, formats.ip_address(server))
    if len(config.searches) > _SEARCHES_LIMIT:
        yield invalid(searches, config.searches, f"must not have more than {_SEARCHES_LIMIT} search paths")
    if len(" ".join(config.searches)) > _SEARCH_LIST_LIMIT:
        message = f"must not have more than {_SEARCH_LIST_LIMIT} characters (including spaces) in the search list"
        yield invalid(searches, config.searches, message)
    for position, search in enumerate(config.searches):
        if search != ".":
            domain = search.removesuffix(".")
            messages = formats.dns_subdomain_with_underscore(domain)
            yield from invalid_each(searches.at(position), domain, messages)
    for position, option in enumerate(config.options):
        if not option.name:
            yield required(path.child("options").at(position), "must not be empty")


def _host_aliases(aliases: tuple[HostAlias, ...], path: FieldPath) -> FieldErrors:
    for position, alias in enumerate(aliases):
        here = path.at(position)
        yield from invalid_each(here.child("ip"), alias.ip, formats.ip_address(alias.ip))
        for name_position, name in enumerate(alias.hostnames):
            yield from invalid_each(here.child("hostnames").at(name_position), name, formats.dns_subdomain(name))


def _host_users(spec: PodSpec, path: FieldPath, options: PodValidationOptions) -> FieldErrors:
    if spec.host_users is not False:
        return
    message = "when `hostUsers` is false"
    if spec.host_network and not options.user_namespaces_host_network:
        yield forbidden(path.child("hostNetwork"), message)
    if spec.host_pid:
        yield forbidden(path.child("HostPID"), message)
    if spec.host_ipc:
        yield forbidden(path.child("HostIPC"), message)
    for container, here in containers_with_paths(spec, path):
        if container.volume_devices:
            yield forbidden(here.child("volumeDevices"), message)


def _hostname_override(spec: PodSpec, path: FieldPath) -> FieldErrors:
    name = spec.hostname_override
    if name is None:
        return
    yield from invalid_each(path, name, formats.dns_subdomain(name))
    if len(name) > _HOSTNAME_LIMIT:
        yield too_long(path, _HOSTNAME_LIMIT)
    if spec.set_hostname_as_fqdn:
        yield forbidden(path, "may not be specified when setHostnameAsFQDN is true")
    if spec.host_network:
        yield forbidden(path, "may not be specified when hostNetwork is true")
