"""What may change through the `resize` subresource (upstream: `ValidatePodResize`)."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.container import Container, ResourceRequirements
from klet.api.pod import Pod, PodSpec
from klet.api.pod_annotations import MIRROR_ANNOTATION
from klet.api.pod_resources import compute_qos_class, is_sidecar
from klet.api.quantity import Quantity
from klet.api.validation.errors import FieldError, FieldErrors, forbidden, invalid
from klet.api.validation.fieldpath import METADATA, ROOT, SPEC, FieldPath
from klet.api.validation.metadata import validate_object_meta_update
from klet.api.validation.options import API_POD, PodValidationOptions
from klet.api.validation.pod import validate_pod

_MUTABLE: Final = ("cpu", "memory")
_ONLY_COMPUTE: Final = "only cpu and memory resources are mutable"


def validate_pod_resize(new: Pod, old: Pod, options: PodValidationOptions = API_POD) -> tuple[FieldError, ...]:
    """Check a write of which the strategy has taken the resources and resize policies of containers."""
    if refusal := _refusal(new, old, options):
        return (refusal,)
    if moved := tuple(_moved_containers(new.spec, old.spec)):
        return moved
    errors = list(validate_object_meta_update(new.metadata, old.metadata, METADATA))
    errors += validate_pod(new, options)
    if (old.status.qos_class or compute_qos_class(old)) != compute_qos_class(new):
        message = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid(SPEC, new.status.qos_class, message))
    if not _is_supported_by_node(old):
        errors.append(forbidden(SPEC, "Pod running on node without support for resize"))
    errors += _removals(new.spec, old.spec)
    errors += _other_changes(new.spec, old.spec)
    if not errors and _put_back(new.spec, old.spec) != old.spec:
        errors.append(forbidden(SPEC, _ONLY_COMPUTE))
    return tuple(errors)


def _refusal(new: Pod, old: Pod, options: PodValidationOptions) -> FieldError | None:
    """Return why a pod cannot be resized at all."""
    if not options.pod_level_resize and any(_has_pod_level_resources(pod) for pod in (old, new)):
        return forbidden(ROOT, "pods with pod-level resources cannot be resized")
    if MIRROR_ANNOTATION in old.metadata.annotations:
        return forbidden(ROOT, "static pods cannot be resized")
    if old.spec.os is not None and old.spec.os.name == "windows":
        return forbidden(ROOT, "windows pods cannot be resized")
    return None


def _has_pod_level_resources(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and bool(resources.requests or resources.limits)


def _moved_containers(new: PodSpec, old: PodSpec) -> FieldErrors:
    for wire_name, mine, theirs in (
        ("containers", new.containers, old.containers),
        ("initContainers", new.init_containers, old.init_containers),
    ):
        path = SPEC.child(wire_name)
        if len(mine) != len(theirs):
            yield forbidden(path, "containers may not be added or removed on resize")
            continue
        for position, (container, previous) in enumerate(zip(mine, theirs, strict=True)):
            if container.name != previous.name:
                message = "containers may not be renamed or reordered on resize"
                yield forbidden(path.at(position).child("name"), message)


def _is_supported_by_node(pod: Pod) -> bool:
    """Return whether the first running container reports resources, as it does if the kubelet can resize."""
    for status in pod.status.container_statuses:
        if status.state.running is not None:
            return status.resources is not None
    return True


def _removals(new: PodSpec, old: PodSpec) -> FieldErrors:
    for wire_name, mine, theirs in (
        ("initContainers", new.init_containers, old.init_containers),
        ("containers", new.containers, old.containers),
    ):
        for position, (container, previous) in enumerate(zip(mine, theirs, strict=True)):
            if wire_name == "containers" or is_sidecar(previous):
                path = SPEC.child(wire_name).at(position).child("resources")
                yield from _removed(container.resources, previous.resources, path)


def _removed(new: ResourceRequirements, old: ResourceRequirements, path: FieldPath) -> FieldErrors:
    if not old.requests.keys() <= new.requests.keys():
        yield forbidden(path.child("requests"), "resource requests cannot be removed")
    if not old.limits.keys() <= new.limits.keys():
        yield forbidden(path.child("limits"), "resource limits cannot be removed")


def _other_changes(new: PodSpec, old: PodSpec) -> FieldErrors:
    for container, previous in zip(new.containers, old.containers, strict=True):
        if _with_compute_of(container, previous) != previous:
            yield forbidden(SPEC, _ONLY_COMPUTE)
    for container, previous in zip(new.init_containers, old.init_containers, strict=True):
        if is_sidecar(container):
            if _with_compute_of(container, previous) != previous:
                yield forbidden(SPEC, "only cpu and memory resources for sidecar containers are mutable")
        elif container != previous:
            yield forbidden(SPEC, "resources for non-sidecar init containers are immutable")


def _put_back(new: PodSpec, old: PodSpec) -> PodSpec:
    return replace(new, containers=old.containers, init_containers=old.init_containers, resources=old.resources)


def _with_compute_of(container: Container, previous: Container) -> Container:
    """Return the container with the cpu and memory it had before."""
    resources = replace(
        container.resources,
        limits=_compute_of(container.resources.limits, previous.resources.limits),
        requests=_compute_of(container.resources.requests, previous.resources.requests),
    )
    return replace(container, resources=resources)


def _compute_of(new: Mapping[str, Quantity], old: Mapping[str, Quantity]) -> dict[str, Quantity]:
    others = {name: amount for name, amount in new.items() if name not in _MUTABLE}
    return others | {name: old[name] for name in _MUTABLE if name in old}
