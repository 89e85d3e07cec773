"""The defaults of a pod, in the order in which the API server applies them (upstream: `SetObjectDefaults_Pod`).

They hold on create, update, patch and every read of stored data, so applying them twice changes nothing.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.container import Container, ContainerPort, ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.defaults.containers import default_container, map_tuple, round_amounts, round_requirements
from klet.api.defaults.volumes import default_volume
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod, PodIP, PodSpec, PodStatus
from klet.api.pod_resources import (
    HUGEPAGES_PREFIX,
    aggregate_container_limits,
    aggregate_container_requests,
    is_pod_level_resource,
)
from klet.api.quantity import Quantity
from klet.api.security import PodSecurityContext

DEFAULT_GRACE_SECONDS: Final = 30
_LEAST_GRACE_SECONDS: Final = 1
_NO_CONTEXT: Final = PodSecurityContext()
_OLD_ANNOTATIONS: Final = frozenset(
    f"pod.{stage}.kubernetes.io/init-container{suffix}" for stage in ("alpha", "beta") for suffix in ("s", "-statuses")
)


def default_pod(pod: Pod) -> Pod:
    """Return the pod with every field filled in that has a default."""
    return replace(pod, metadata=_metadata(pod.metadata), spec=_spec(pod.spec), status=_status(pod.status))


def _spec(spec: PodSpec) -> PodSpec:
    containers = map_tuple(spec.containers, _requests_from_limits)
    init_containers = map_tuple(spec.init_containers, _requests_from_limits)
    resources = spec.resources
    if resources is not None:
        resources = _pod_level(replace(spec, containers=containers, init_containers=init_containers), resources)
    if spec.host_network:
        containers = map_tuple(containers, _host_ports)
        init_containers = map_tuple(init_containers, _host_ports)
    account = spec.service_account_name or spec.service_account
    return replace(
        spec,
        enable_service_links=True if spec.enable_service_links is None else spec.enable_service_links,
        dns_policy=spec.dns_policy or "ClusterFirst",
        restart_policy=spec.restart_policy or "Always",
        security_context=_NO_CONTEXT if spec.security_context is None else spec.security_context,
        termination_grace_period_seconds=_grace_period(spec.termination_grace_period_seconds),
        scheduler_name=spec.scheduler_name or "default-scheduler",
        volumes=map_tuple(spec.volumes, default_volume),
        init_containers=tuple(map(default_container, init_containers)),
        containers=tuple(map(default_container, containers)),
        ephemeral_containers=tuple(map(default_container, spec.ephemeral_containers)),
        overhead=round_amounts(spec.overhead),
        resources=None if resources is None else round_requirements(resources),
        # Both names of the field are always written, and always equal.
        service_account_name=account,
        service_account=account,
    )


def _requests_from_limits(container: Container) -> Container:
    limits, requests = container.resources.limits, container.resources.requests
    if limits.keys() <= requests.keys():
        return container
    return replace(container, resources=replace(container.resources, requests={**limits, **requests}))


def _pod_level(spec: PodSpec, resources: ResourceRequirements) -> ResourceRequirements:
    limits, requests = dict(resources.limits), dict(resources.requests)
    if limits or requests:
        for name, amount in aggregate_container_limits(spec).items():
            if name.startswith(HUGEPAGES_PREFIX) and name not in requests and name not in limits:
                limits[name] = amount
    if limits:
        aggregate = aggregate_container_requests(spec)
        # Hugepages cannot be overcommitted, so their requests come from the limits alone.
        _fill(requests, {name: aggregate[name] for name in ("cpu", "memory") if name in aggregate})
        _fill(requests, {name: amount for name, amount in limits.items() if is_pod_level_resource(name)})
    return replace(resources, limits=limits, requests=requests)


def _fill(amounts: dict[str, Quantity], missing: Mapping[str, Quantity]) -> None:
    for name, amount in missing.items():
        amounts.setdefault(name, amount)


def _host_ports(container: Container) -> Container:
    return replace(container, ports=map_tuple(container.ports, _host_port))


def _host_port(port: ContainerPort) -> ContainerPort:
    return port if port.host_port else replace(port, host_port=port.container_port)


def _grace_period(seconds: int | None) -> int:
    if seconds is None:
        return DEFAULT_GRACE_SECONDS
    return _LEAST_GRACE_SECONDS if seconds < 0 else seconds


def _metadata(meta: ObjectMeta) -> ObjectMeta:
    if _OLD_ANNOTATIONS.isdisjoint(meta.annotations):
        return meta
    kept = {key: value for key, value in meta.annotations.items() if key not in _OLD_ANNOTATIONS}
    return replace(meta, annotations=kept)


def _status(status: PodStatus) -> PodStatus:
    changed = replace(
        status,
        init_container_statuses=map_tuple(status.init_container_statuses, _container_status),
        container_statuses=map_tuple(status.container_statuses, _container_status),
        ephemeral_container_statuses=map_tuple(status.ephemeral_container_statuses, _container_status),
        allocated_resources=round_amounts(status.allocated_resources),
        resources=None if status.resources is None else round_requirements(status.resources),
    )
    first = status.pod_ips[0].ip if status.pod_ips else ""
    if status.pod_ip and status.pod_ip != first:
        return replace(changed, pod_ips=(PodIP(ip=status.pod_ip),))
    return replace(changed, pod_ip=first) if status.pod_ip != first else changed


def _container_status(status: ContainerStatus) -> ContainerStatus:
    amounts = round_amounts(status.allocated_resources)
    resources = None if status.resources is None else round_requirements(status.resources)
    if amounts is status.allocated_resources and resources is status.resources:
        return status
    return replace(status, allocated_resources=amounts, resources=resources)
