"""References from containers and volumes to fields and resources of the pod (the downward API)."""

from typing import Final

from klet.api.container import ObjectFieldSelector, ResourceFieldSelector
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, invalid, invalid_each, not_supported, required
from klet.api.validation.fieldpath import FieldPath

ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_KNOWN_FIELDS: Final = frozenset(
    (*ENV_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "spec.host", "status.phase")
)
_RESOURCES: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGEPAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_SIZE_DIVISORS: Final = ("1", *(f"1{unit}" for unit in ("k", *"MGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))


def split_subscript(field_path: str) -> tuple[str, str] | None:
    """Split `metadata.labels['k']` into its path and its key; return None when there is no subscript."""
    path, bracket, rest = field_path.partition("['")
    return (path, rest[:-2]) if bracket and path and rest.endswith("']") else None


def validate_field_selector(selector: ObjectFieldSelector, supported: tuple[str, ...], path: FieldPath) -> FieldErrors:
    if not selector.api_version:
        yield required(path.child("apiVersion"))
    elif not selector.field_path:
        yield required(path.child("fieldPath"))
    elif problem := _conversion_problem(selector):
        yield invalid(path.child("fieldPath"), selector.field_path, f"error converting fieldPath: {problem}")
    elif subscripted := split_subscript(selector.field_path):
        parent, key = subscripted
        key = key.lower() if parent == "metadata.annotations" else key
        yield from invalid_each(path, key, formats.label_key(key))
    else:
        field = "spec.nodeName" if selector.field_path == "spec.host" else selector.field_path
        if field not in supported:
            yield not_supported(path.child("fieldPath"), field, supported)


def validate_resource_selector(selector: ResourceFieldSelector, path: FieldPath, *, in_volume: bool) -> FieldErrors:
    if in_volume and not selector.container_name:
        yield required(path.child("containerName"))
    elif not selector.resource:
        yield required(path.child("resource"))
    elif selector.resource not in _RESOURCES and not selector.resource.startswith(_HUGEPAGES):
        yield not_supported(path.child("resource"), selector.resource, _RESOURCES)
    yield from _divisor(selector, path.child("divisor"))


def _conversion_problem(selector: ObjectFieldSelector) -> str:
    if selector.api_version != "v1":
        return f"unsupported pod version: {selector.api_version}"
    if subscripted := split_subscript(selector.field_path):
        if subscripted[0] in {"metadata.annotations", "metadata.labels"}:
            return ""
        return f"field label does not support subscript: {selector.field_path}"
    return "" if selector.field_path in _KNOWN_FIELDS else f"field label not supported: {selector.field_path}"


def _divisor(selector: ResourceFieldSelector, path: FieldPath) -> FieldErrors:
    divisor = "0" if selector.divisor is None else str(selector.divisor)
    if divisor == "0":
        return
    name = selector.resource.partition(".")[2]
    if name == "cpu":
        if divisor not in {"1m", "1"}:
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            yield invalid(path, selector.resource, detail)
        return
    kinds = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
    kind = "hugepages" if selector.resource.startswith(_HUGEPAGES) else kinds.get(name)
    if kind and divisor not in _SIZE_DIVISORS:
        detail = f"only divisor's values {', '.join(_SIZE_DIVISORS)} are supported with the {kind} resource"
        yield invalid(path, selector.resource, detail)
