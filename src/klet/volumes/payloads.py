"""Makes files of config maps, secrets and the downward API. Pure.

Volumes know fewer of the pod's own fields than the environment does: none that change by themselves.
"""

import posixpath
from collections.abc import Mapping, Sequence

from klet.api.config import ConfigMap, Secret
from klet.api.container import ResourceFieldSelector
from klet.api.pod import Pod
from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Quantity
from klet.api.volume import DownwardAPIVolumeFile, KeyToPath
from klet.model.allocation import PodAllocation
from klet.model.downward import format_map, in_units, map_entry, split_subscript
from klet.model.error_text import join_errors
from klet.model.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY
from klet.volumes.atomic_writer import FileProjection
from klet.volumes.errors import VolumeSetupError

NO_DEFAULT_MODE = "no defaultMode used, not even the default value for it"
_FROM_NODE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""A container without a limit of these could use what the node has."""


def config_map_payload(
    found: ConfigMap, items: Sequence[KeyToPath], *, default_mode: int, is_optional: bool
) -> dict[str, FileProjection]:
    """Return every key, or those that are listed. Of two values under one key the text counts, if the key is listed."""
    text = {key: value.encode() for key, value in found.data.items()}
    content = {**found.binary_data, **text} if items else {**text, **found.binary_data}
    missing = None if is_optional else "configmap references non-existent config key: {}"
    return _chosen(content, items, default_mode, missing)


def secret_payload(
    found: Secret, items: Sequence[KeyToPath], *, default_mode: int, is_optional: bool
) -> dict[str, FileProjection]:
    missing = None if is_optional else "references non-existent secret key: {}"
    return _chosen(found.data, items, default_mode, missing)


def downward_payload(
    pod: Pod,
    allocation: PodAllocation,
    items: Sequence[DownwardAPIVolumeFile],
    *,
    default_mode: int,
    allocatable: Mapping[str, Quantity] | None,
) -> dict[str, FileProjection]:
    """Return the pod's own fields; all errors are reported together."""
    files: dict[str, FileProjection] = {}
    errors: list[str] = []
    for item in items:
        try:
            text = _downward_text(pod, allocation, item, allocatable)
        except VolumeSetupError as error:
            errors.append(str(error))
        else:
            mode = default_mode if item.mode is None else item.mode
            files[posixpath.normpath(item.path) if item.path else ""] = FileProjection(text.encode(), mode)
    if errors:
        raise VolumeSetupError(join_errors(errors))
    return files


def required_mode(mode: int | None) -> int:
    """Return the default mode, which the API server always fills in."""
    if mode is None:
        raise VolumeSetupError(NO_DEFAULT_MODE)
    return mode


def _chosen(
    content: Mapping[str, bytes], items: Sequence[KeyToPath], default_mode: int, missing: str | None
) -> dict[str, FileProjection]:
    if not items:
        return {key: FileProjection(data, default_mode) for key, data in content.items()}
    files: dict[str, FileProjection] = {}
    for item in items:
        data = content.get(item.key)
        if data is not None:
            files[item.path] = FileProjection(data, default_mode if item.mode is None else item.mode)
        elif missing is not None:
            raise VolumeSetupError(missing.format(item.key))
    return files


def _downward_text(
    pod: Pod,
    allocation: PodAllocation,
    item: DownwardAPIVolumeFile,
    allocatable: Mapping[str, Quantity] | None,
) -> str:
    if item.field_ref is not None:
        return field_text(pod, item.field_ref.field_path)
    if item.resource_field_ref is not None:
        return resource_text(allocation, item.resource_field_ref, allocatable=allocatable)
    return ""


def field_text(pod: Pod, path: str) -> str:
    meta = pod.metadata
    if (split := split_subscript(path)) is not None:
        return _entry(pod, path, *split)
    match path:
        case "metadata.name":
            return meta.name
        case "metadata.namespace":
            return meta.namespace
        case "metadata.uid":
            return meta.uid
        case "metadata.labels":
            return format_map(meta.labels)
        case "metadata.annotations":
            return format_map(meta.annotations)
        case _:
            raise VolumeSetupError(f"unsupported fieldPath: {path}")


def resource_text(
    allocation: PodAllocation, wanted: ResourceFieldSelector, *, allocatable: Mapping[str, Quantity] | None
) -> str:
    """Return a request or limit of a container in multiples of a divisor, rounded up."""
    if allocatable is None:
        raise VolumeSetupError("failed retrieving node: it is not known yet what the node has for pods")
    every = (*allocation.containers, *allocation.init_containers)
    container = next((each for each in every if each.name == wanted.container_name), None)
    if container is None:
        raise VolumeSetupError(f"container {wanted.container_name} not found")
    kind, _, resource = wanted.resource.partition(".")
    is_known = resource in _FROM_NODE or resource.startswith(HUGEPAGES_PREFIX)
    if kind not in {"limits", "requests"} or not is_known:
        raise VolumeSetupError(f"unsupported container resource : {wanted.resource}")
    amounts = container.given.limits if kind == "limits" else container.given.requests
    amount = amounts.get(resource, ZERO)
    if not amount and kind == "limits" and resource in _FROM_NODE:
        amount = allocatable.get(resource, ZERO)
    return in_units(amount, wanted.divisor, resource)


def _entry(pod: Pod, path: str, front: str, key: str) -> str:
    entry = map_entry(pod.metadata, front, key)
    if entry is None:
        raise VolumeSetupError(f'fieldPath "{path}" does not support subscript')
    if entry.problems:
        raise VolumeSetupError(f"invalid key subscript in {path}: {';'.join(entry.problems)}")
    return entry.text
