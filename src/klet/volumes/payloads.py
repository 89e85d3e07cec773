"""Makes files of config maps, secrets and the downward API. Pure."""

import posixpath
from collections.abc import Mapping, Sequence

from klet.api.config import ConfigMap, Secret
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.volume import DownwardAPIVolumeFile, KeyToPath
from klet.model.allocation import PodAllocation
from klet.model.error_text import join_errors
from klet.volumes.atomic_writer import FileProjection
from klet.volumes.downward import field_text, resource_text
from klet.volumes.errors import VolumeSetupError

NO_DEFAULT_MODE = "no defaultMode used, not even the default value for it"


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
