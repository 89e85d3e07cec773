"""What may change through the `status` subresource of a pod (upstream: `ValidatePodStatusUpdate`)."""

from collections.abc import Sequence
from typing import Final

from klet.api.container import Container
from klet.api.container_status import ContainerStatus, LinuxContainerUser, ResourceStatus
from klet.api.pod import HostIP, Pod, PodIP, PodSpec
from klet.api.pod_resources import is_sidecar
from klet.api.validation import formats
from klet.api.validation.annotations import validate_pod_annotation_updates
from klet.api.validation.errors import (
    FieldError,
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
)
from klet.api.validation.fieldpath import METADATA, STATUS, FieldPath
from klet.api.validation.metadata import IMMUTABLE, NOT_NEGATIVE, validate_object_meta_update
from klet.api.validation.options import API_POD, PodValidationOptions

_SYSTEM_CONDITIONS: Final = frozenset({"PodScheduled", "Ready", "Initialized"})
_HEALTH: Final = ("Healthy", "Unhealthy", "Unknown")


def validate_pod_status_update(new: Pod, old: Pod, options: PodValidationOptions = API_POD) -> tuple[FieldError, ...]:
    """Check a write to the status, after the strategy has kept the old spec and filled an empty QoS class."""
    return tuple(_status_update(new, old, options))


def _status_update(new: Pod, old: Pod, options: PodValidationOptions) -> FieldErrors:
    yield from validate_object_meta_update(new.metadata, old.metadata, METADATA)
    yield from validate_pod_annotation_updates(new, old)
    yield from _conditions(new)
    if new.spec.node_name != old.spec.node_name:
        yield forbidden(STATUS.child("nodeName"), "may not be changed directly")
    yield from _nominated_node(new, old)
    if new.status.observed_generation < 0:
        yield invalid(STATUS.child("observedGeneration"), new.status.observed_generation, NOT_NEGATIVE)
    if new.status.qos_class != old.status.qos_class:
        yield invalid(STATUS.child("qosClass"), new.status.qos_class, IMMUTABLE)
    yield from _transitions(new, old, options)
    yield from _claim_statuses(new)
    yield from _pod_ips(new.status.pod_ips)
    yield from _host_ips(new.status.host_ip, new.status.host_ips)
    yield from _users(new)
    yield from _allocated_resources(new)


def _conditions(pod: Pod) -> FieldErrors:
    path = METADATA.child("conditions")
    for position, condition in enumerate(pod.status.conditions):
        if condition.type not in _SYSTEM_CONDITIONS:
            # The API server prints these under metadata, with a capital letter.
            messages = formats.label_key(condition.type)
            yield from invalid_each(path.at(position).child("Type"), condition.type, messages)
        if condition.observed_generation < 0:
            here = STATUS.child("conditions").at(position).child("observedGeneration")
            yield invalid(here, condition.observed_generation, NOT_NEGATIVE)


def _nominated_node(new: Pod, old: Pod) -> FieldErrors:
    name, path = new.status.nominated_node_name, STATUS.child("nominatedNodeName")
    if not name or name == old.status.nominated_node_name:
        return
    if new.spec.node_name:
        yield forbidden(path, "may not be set on pods that are already bound to a node")
    yield from invalid_each(path, name, formats.dns_subdomain(name))


def _transitions(new: Pod, old: Pod, options: PodValidationOptions) -> FieldErrors:
    """Check that containers that stay terminated by their restart policy do not come back."""
    spec = old.spec
    if not (options.restart_all_containers and _may_restart_all(spec)):
        yield from _returns(new, old)
    for position, status in enumerate(old.status.ephemeral_container_statuses):
        if status.state.terminated is not None:
            statuses = new.status.ephemeral_container_statuses
            yield from _resurrected(status, statuses, "ephemeralContainerStatuses", position)


def _returns(new: Pod, old: Pod) -> FieldErrors:
    spec = old.spec
    regular = {container.name: container for container in spec.containers}
    for position, status in enumerate(old.status.container_statuses):
        if _stays_terminated(status, spec, regular.get(status.name)):
            yield from _resurrected(status, new.status.container_statuses, "containerStatuses", position)
    init = {container.name: container for container in spec.init_containers}
    for position, status in enumerate(old.status.init_container_statuses):
        container = init.get(status.name)
        if not (container is not None and is_sidecar(container)) and _stays_terminated(status, spec, container):
            yield from _resurrected(status, new.status.init_container_statuses, "initContainerStatuses", position)


def _may_restart_all(spec: PodSpec) -> bool:
    """Return whether the exit of one container may bring all others back, whatever their policies."""
    containers = (*spec.init_containers, *spec.containers)
    return any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules)


def _stays_terminated(status: ContainerStatus, spec: PodSpec, container: Container | None) -> bool:
    if status.state.terminated is None:
        return False
    if container is not None and container.restart_policy_rules:
        return False
    own = None if container is None else container.restart_policy
    match own or spec.restart_policy:
        case "Always":
            return False
        case "OnFailure":
            return status.state.terminated.exit_code == 0
        case _:
            return True


def _resurrected(
    old: ContainerStatus, statuses: tuple[ContainerStatus, ...], wire_name: str, position: int
) -> FieldErrors:
    for status in statuses:
        if status.name == old.name and status.state.terminated is None:
            path = STATUS.child(wire_name).at(position).child("state")
            yield forbidden(path, "may not be transitioned to non-terminated state")


def _claim_statuses(pod: Pod) -> FieldErrors:
    known = {claim.name for claim in pod.spec.resource_claims}
    seen: set[str] = set()
    for position, status in enumerate(pod.status.resource_claim_statuses):
        path = STATUS.child("resourceClaimStatuses").at(position).child("name")
        if status.name not in known:
            yield invalid(path, status.name, "must match the name of an entry in `spec.resourceClaims`")
        if status.name in seen:
            yield duplicate(path, status.name)
        seen.add(status.name)
        if (name := status.resource_claim_name) is not None:
            yield from invalid_each(path, name, formats.dns_subdomain(name))


def _pod_ips(addresses: tuple[PodIP, ...]) -> FieldErrors:
    path = STATUS.child("podIPs")
    for position, address in enumerate(addresses):
        yield from invalid_each(path.at(position), address.ip, formats.ip_address(address.ip))
    if len(addresses) > 1:
        yield from _one_per_family(addresses, path)
        yield from _repeated(addresses, path)


def _host_ips(host_ip: str, addresses: tuple[HostIP, ...]) -> FieldErrors:
    path = STATUS.child("hostIPs")
    if addresses and host_ip != addresses[0].ip:
        yield invalid(path.at(0).child("ip"), addresses[0].ip, "must be equal to `hostIP`")
    for position, address in enumerate(addresses):
        yield from invalid_each(path.at(position), address.ip, formats.ip_address(address.ip))
    if len(addresses) > 1:
        yield from _repeated(addresses, path)
        yield from _one_per_family(addresses, path)


def _repeated(addresses: Sequence[PodIP | HostIP], path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, address in enumerate(addresses):
        if address.ip in seen:
            yield duplicate(path.at(position), address)
        seen.add(address.ip)


def _one_per_family(addresses: Sequence[PodIP | HostIP], path: FieldPath) -> FieldErrors:
    families = [parsed.version for address in addresses if (parsed := formats.parse_ip(address.ip)) is not None]
    if len(addresses) > 2 or len(set(families)) < 2:
        yield invalid(path, tuple(addresses), "may specify no more than one IP for each IP family")


def _users(pod: Pod) -> FieldErrors:
    windows = pod.spec.os is not None and pod.spec.os.name == "windows"
    for wire_name, statuses in _all_statuses(pod):
        for position, status in enumerate(statuses):
            if status.user is None or status.user.linux is None:
                continue
            path = STATUS.child(wire_name).at(position).child("linux")
            if windows:
                yield forbidden(path, "cannot be set for a windows pod")
            else:
                yield from _linux_user(status.user.linux, path)


def _linux_user(user: LinuxContainerUser, path: FieldPath) -> FieldErrors:
    yield from invalid_each(path.child("uid"), user.uid, formats.user_or_group_id(user.uid))
    yield from invalid_each(path.child("gid"), user.gid, formats.user_or_group_id(user.gid))
    for position, group in enumerate(user.supplemental_groups):
        here = path.child("supplementalGroups").at(position)
        yield from invalid_each(here, group, formats.user_or_group_id(group))


def _allocated_resources(pod: Pod) -> FieldErrors:
    by_name = {container.name: container for container in (*pod.spec.containers, *pod.spec.init_containers)}
    for wire_name, statuses in _all_statuses(pod):
        for position, status in enumerate(statuses):
            path = STATUS.child(wire_name).at(position).child("allocatedResourcesStatus")
            if not status.allocated_resources_status:
                continue
            if wire_name == "ephemeralContainerStatuses":
                yield forbidden(path, "must not be specified in container status")
                continue
            for entry_position, entry in enumerate(status.allocated_resources_status):
                yield from _resource_status(entry, by_name.get(status.name), path.at(entry_position))


def _resource_status(entry: ResourceStatus, container: Container | None, path: FieldPath) -> FieldErrors:
    if container is not None:
        yield from _allocated_name(entry.name, container, path.child("name"))
    seen: set[str] = set()
    for position, resource in enumerate(entry.resources):
        here = path.child("resources").at(position)
        if resource.health not in _HEALTH:
            yield not_supported(here.child("health"), resource.health, _HEALTH)
        if resource.resource_id in seen:
            yield duplicate(here.child("resourceID"), resource.resource_id)
        seen.add(resource.resource_id)


def _allocated_name(name: str, container: Container, path: FieldPath) -> FieldErrors:
    if not name.startswith("claim:"):
        if name not in container.resources.requests:
            yield invalid(path, name, "must match one of the container's resource requests")
        return
    claims = {
        f"claim:{claim.name}/{claim.request}" if claim.request else f"claim:{claim.name}"
        for claim in container.resources.claims
    }
    if name not in claims:
        form = "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
        yield invalid(path, name, f"must match one of the container's resource claims in a format {form}")


def _all_statuses(pod: Pod) -> tuple[tuple[str, tuple[ContainerStatus, ...]], ...]:
    return (
        ("containerStatuses", pod.status.container_statuses),
        ("initContainerStatuses", pod.status.init_container_statuses),
        ("ephemeralContainerStatuses", pod.status.ephemeral_container_statuses),
    )
